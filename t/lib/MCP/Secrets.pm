package MCP::Secrets;

# What clients sent and nobody else may see: session ids and credentials.  Each
# nginx is searched for them when it ends: its files and its status pages.

use strict;
use warnings;

use Exporter 'import';
use File::Find ();
use MCP::Util 'slurp';

our @EXPORT_OK = qw(in_files in_text note);

# Shorter ones, as tests use them, are words of other texts, too.
my $shortest = 12;

# Searched for, of thousands.
my $most = 300;

# What ids of the fake servers and of the SDKs look like, and any credential.
my $form = qr/\bs\d+-[0-9a-f]{2,}-\d+-[0-9a-f]{8,}
             |\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b
             |\bBearer\ +(?!\*)[^\s"]+/x;

my (%seen, @all);


# Takes the headers of a request, [[name, value], ...].

sub note {
    for my $header (@_) {
        my ($name, $value) = @$header;

        next if $name !~ /^(?:mcp-session-id|authorization|x-key)$/i;
        $value =~ s/^(?:Bearer|Basic) +//;
        next if length $value < $shortest || $seen{$value}++;
        push @all, $value;
    }

    return;
}


# The secrets in a text.

sub in_text {
    my ($text) = @_;

    my @some = @all > $most ? @all[-$most .. -1] : @all;
    my %found = map { $_ => 1 } $text =~ /$form/g;

    $found{$_} = 1 for grep { index($text, $_) >= 0 } @some;

    return sort keys %found;
}


# In what a nginx has left in its folder; its own cache keeps whole answers.

sub in_files {
    my ($dir) = @_;

    my @found;

    File::Find::find({ no_chdir => 1, wanted => sub {
        return if !-f || -s _ > 20_000_000 || m{/nginx\.conf$|/cache/};
        push @found, map { "$File::Find::name shows $_" } in_text(slurp($_));
    } }, $dir);

    return @found;
}


1;
