package MCP::H2;

# Requests over HTTP/2, by nghttp.

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(two_over_h2);


# The answers to two equal requests on one connection, one after the other:
# { ':status', 'content-type', ..., body } each.

sub two_over_h2 {
    my ($nginx, $c, $method) = @_;

    my $dir = $nginx->{dir};
    my @data;

    if ($method eq 'POST') {
        open my $fh, '>', "$dir/h2-body" or die "$dir/h2-body: $!\n";
        print {$fh} '{"jsonrpc":"2.0","id":1,"method":"tools/call"}';
        close $fh;
        @data = ('-d', "$dir/h2-body");
    }

    my @command = ('nghttp', '-v', '--no-dep', '-m2', '-t3',
                   '--peer-max-concurrent-streams=1', @data,
                   "-H:method: $method", '-Hcontent-type: application/json',
                   '-Hmcp-session-id: ' . $c->session,
                   'http://127.0.0.1:' . $nginx->port(2) . $c->{uri});

    open my $pipe, '-|', @command or die "nghttp: $!\n";

    my $all = do { local $/; <$pipe> } // '';
    close $pipe;

    return frames($all);
}


# What nghttp -v has printed: header lines, frames, and bodies between them.

sub frames {
    my ($all) = @_;

    my (%answer, @order);

    $all =~ s/\e\[[\d;]*m//g;

    while ($all =~ /recv[ ]\(stream_id=(\d+)\)[ ](:?[\w-]+):[ ](.*)/xg) {
        my ($id, $name, $value) = ($1, $2, $3);

        push @order, $id unless $answer{$id};
        $answer{$id}{$name} = $value;
    }

    # a body stands in front of the line that tells of its DATA frame

    $all =~ s/\n\s{10,}.*//g;

    while ($all =~ /(?:\A|\n)(?!\[)(.*?)\[[ ]*[\d.]+\][ ]recv[ ]DATA[ ]frame
                    [ ]<length=(\d+),.*?stream_id=(\d+)>/sxg)
    {
        $answer{$3}{body} .= substr $1, -$2, $2 if $2;
    }

    return @answer{@order};
}


1;
