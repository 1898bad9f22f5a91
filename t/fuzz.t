#!/usr/bin/perl

# Replays what fuzzing found (t/fuzz/corpus), without clang: every file once
# through its target (t/fuzz/fuzz_*.c), which dies if an invariant is broken.

use strict;
use warnings;

use FindBin;
use TAP::Parser;
use Test::More;

my $root = "$FindBin::Bin/..";

system('make', '-s', '-C', $root, 'unit-programs') == 0
    or BAIL_OUT('the fuzz targets do not compile');

for my $source (sort glob("$root/t/fuzz/fuzz_*.c")) {
    my ($name) = $source =~ m{fuzz_(\w+)\.c$};

    subtest $name => sub {
        my $parser = TAP::Parser->new({
            exec => ["$root/objs/unit/fuzz_$name",
                     "$root/t/fuzz/corpus/$name"],
        });

        my $file = '';

        while (my $result = $parser->next) {
            ok($result->is_ok, $result->description) if $result->is_test;
            $file = $result->comment if $result->is_comment;
        }

        ok($parser->tests_run && !$parser->parse_errors, 'TAP is complete')
            or diag("died at $file");
        is($parser->exit, 0, 'exit code');
    };
}

done_testing();
