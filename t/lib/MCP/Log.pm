package MCP::Log;

# Reads nginx's error log and judges it.

use strict;
use warnings;

use MCP::Util 'slurp';

my $bad = qr/\[(?:alert|emerg)\]
            |(?:Address|Leak|Thread|UndefinedBehavior)Sanitizer
            |runtime\ error:/x;


sub new {
    my ($class, @files) = @_;

    return bless { files => \@files, allow => [] }, $class;
}


# Lines that would be bad are fine when they match.

sub allow {
    my ($self, @patterns) = @_;

    push @{ $self->{allow} }, @patterns;
    return;
}


sub lines {
    my ($self, $pattern) = @_;

    my @lines = split /\n/, join '', map { slurp($_) } @{ $self->{files} };

    return grep { /$pattern/ } @lines if defined $pattern;
    return @lines;
}


sub bad_lines {
    my ($self) = @_;

    return grep { !$self->allowed($_) } $self->lines($bad);
}


sub allowed {
    my ($self, $line) = @_;

    return scalar grep { $line =~ $_ } @{ $self->{allow} };
}


# Pids of workers that were started and have not exited, oldest first.

sub workers {
    my ($self, $from) = @_;

    my @started = map { /start worker process (\d+)/ } $self->lines;
    my %gone = map { $_ => 1 }
               map { /worker process (\d+) exited/ } $self->lines;

    return grep { !$gone{$_} } @started;
}


1;
