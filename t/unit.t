#!/usr/bin/perl

# Runs the C unit tests (t/unit/*_test.c), each a program that prints TAP.

use strict;
use warnings;

use FindBin;
use TAP::Parser;
use Test::More;

my $root = "$FindBin::Bin/..";

system('make', '-s', '-C', $root, 'unit-programs') == 0
    or BAIL_OUT('the unit tests do not compile');

my @programs = sort glob("$root/objs/unit/*_test");

for my $program (@programs) {
    my ($name) = $program =~ m{([^/]+)$};

    next unless -e "$root/t/unit/$name.c";

    subtest $name => sub {
        my $parser = TAP::Parser->new({ exec => [$program] });

        while (my $result = $parser->next) {
            if ($result->is_test) {
                ok($result->is_ok, $result->description);

            } elsif ($result->is_comment || $result->is_unknown) {
                diag($result->as_string);
            }
        }

        ok($parser->tests_run && !$parser->parse_errors, 'TAP is complete');
        is($parser->exit, 0, 'exit code');
    };
}

done_testing();
