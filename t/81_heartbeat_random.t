#!/usr/bin/perl

# What a client gets, without our comments, is what the server sent, byte for
# byte: random streams of every kind of line end, cut at random points, with
# heartbeats due at random moments.
#
# MCP_RANDOM: how many streams (300); MCP_SEED: of the random numbers.

use lib 't/lib';
use MCP::Test;

use constant { BATCH => 150, COMMENT => ":\n\n" };

my $todo = $ENV{MCP_RANDOM} // ($ENV{MCP_VALGRIND} ? 50 : 300);
my $seed = $ENV{MCP_SEED} // time ^ $$;

srand $seed;
note("MCP_SEED=$seed");

my $fake = fake();
my $nginx = nginx(
    fakes => [$fake], connections => 2048, workers => 2,
    upstream => 'mcp_keepalive zone=mcp:1m interval=off;',
    location => 'mcp_heartbeat 100ms;');
my %seen = map { $_ => 0 } qw(comments inside);
my @bad;

for (my $left = $todo; $left > 0; $left -= BATCH) {
    batch($left < BATCH ? $left : BATCH);
    last if @bad;
}

is(scalar @bad, 0, "$todo streams: the server's bytes and our comments")
    or diag(map { "$_\n" } "MCP_SEED=$seed", @bad[0 .. ($#bad < 4 ? $#bad : 4)]);
cmp_ok($seen{comments}, '>', $todo / 2, 'there were comments');
cmp_ok($seen{inside}, '>', $todo / 10,
       '... between events, too');
finish();


sub batch {
    my ($n) = @_;

    my @texts = map { random_stream() } 1 .. $n;
    my @x;

    $fake->clear;

    for my $i (0 .. $#texts) {
        $fake->rule(when => { uri => "/mcp?$i" },
                    do => { raw => script($texts[$i]) });
        push @x, MCP::Exchange->new(
            port => $nginx->port,
            bytes => "GET /mcp?$i HTTP/1." . (rand 4 < 1 ? 0 : 1)
                     . "\r\nHost: tools.example\r\n\r\n");
    }

    MCP::Exchange::drive(\@x, timeout => 30);

    for my $i (0 .. $#texts) {
        my $wrong = $x[$i]{failed} // fault($texts[$i], $x[$i]->body);

        push @bad, $wrong . ': ' . quoted($texts[$i]) . ' -> '
                   . quoted($x[$i]->body) if $wrong;
    }

    return;
}


# ---- what the server sends ----

sub pick { return $_[rand @_] }


# No line is a colon alone, so that ours are known; "data:" with nothing is.

sub random_stream {
    my $end = pick("\n", "\r\n", "\r", undef);
    my $ends = sub { return $end // pick("\n", "\r\n", "\r") };
    my $text = pick('', '', '', "\xef\xbb\xbf");

    for (1 .. 1 + rand 6) {
        for (1 .. rand 4) {
            $text .= pick('data: {"a":1}', 'data:', 'id: 7', 'event: message',
                          ': a comment', ':x', 'retry: 10', 'data',
                          "data: \xe2\x80\xa8\xc2\x85", "data: \x85", 'x' x 50)
                     . $ends->();
        }

        $text .= $ends->();
    }

    $text .= 'data: an event that is not finished' if rand 5 < 1;

    return $text;
}


# The same, cut into chunks and those into writes.  A cut in five is where an
# event ends: heartbeats are only there.

sub script {
    my ($text) = @_;

    my $head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
               . "Transfer-Encoding: chunked\r\n\r\n";
    my $whole = rand 2 < 1;
    my ($wire, @steps) = ('', $head);

    while (length $text) {
        my $size = 1 + int rand pick(3, 20, 80);

        if ($whole && $text =~ /^.*?(?:\n\n|\r\n\r\n|\r\r|\n\r\n)/s) {
            $size = $+[0];
        }

        my $part = substr $text, 0, $size, '';

        $wire .= sprintf "%x\r\n%s\r\n", length $part, $part;

        if (@steps < 12 && rand 5 < 3) {
            push @steps, [int rand pick(5, 150, 350)],
                 substr $wire, 0, $whole ? length $wire : rand length $wire, '';
        }
    }

    $wire .= "0\r\n\r\n";

    return [@steps, [int rand 200], $wire];
}


# ---- what the client got ----

# A walk along both: comments only where the server's text may be parted.

sub fault {
    my ($sent, $got) = @_;

    my ($i, $j) = (0, 0);

    while ($j < length $got) {
        if (substr($got, $j, 3) eq COMMENT
            && (substr($sent, $i, 3) ne COMMENT || boundary($sent, $i)))
        {
            return "a comment at $i" unless boundary($sent, $i);

            $seen{comments}++;
            $seen{inside}++ if $i > 0 && $i < length $sent;
            $j += 3;
            next;
        }

        return "another byte at $i"
            if $i >= length $sent
               || substr($got, $j, 1) ne substr($sent, $i, 1);

        $i++;
        $j++;
    }

    return "only $i bytes" if $i < length $sent;
    return 'other events' if events($sent) ne events($got);
    return;
}


# After an empty line; one that ends in CR may still get its LF, unless the one
# before ended in CR as well.

sub boundary {
    my ($text, $at) = @_;

    my $before = substr($text, 0, $at) =~ s/^\xef\xbb\xbf//r;

    return 1 if $before eq '';
    return 0 unless $before =~ s/(\r\n|\n|\r)\z//;

    my $end = $1;

    return $before =~ /\r\z/ if $end eq "\r";
    return $before eq '' || $before =~ /[\r\n]\z/;
}


# What a client makes of it (WHATWG HTML, 9.2.6), comments left out.

sub events {
    my ($text) = @_;

    my ($out, $event) = ('', '');

    # what comes before a BOM makes it a part of a field's name: left out, too
    $text =~ s/^(?::\n\n)*\xef\xbb\xbf//;

    for my $line (split /\r\n|\n|\r/, $text, -1) {
        if ($line eq '') {
            $out .= "$event|" if $event ne '';
            $event = '';
        }
        elsif ($line !~ /^:/) {
            $event .= "$line;";
        }
    }

    return $out;
}


sub quoted {
    return $_[0] =~ s/\r/\\r/gr =~ s/\n/\\n/gr
           =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ger;
}
