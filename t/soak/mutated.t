#!/usr/bin/perl

# 100,000 answers of which some bytes are wrong, to clients and to keepalives:
# nginx lives, and when the server is good again all is as before.

use lib 't/lib';
use IO::Select;
use IO::Socket::INET;
use MCP::Soak;
use MCP::Test;
use MCP::Util qw(free_port work_dir);

my $want = $ENV{MCP_ANSWERS} // 100_000;
my $fake = fake();
my $port = free_port();
my $counter = work_dir() . '/answers';
my $server = serve();

my $nginx = nginx(
    fakes => [$fake], workers => 2, connections => 1024, level => 'notice',
    servers => ["127.0.0.1:$port"],
    upstream => 'mcp_keepalive zone=mcp:1m interval=100ms rate=100000'
              . ' timeout=300ms failures=1000000;'
              . ' mcp_reconnect budget=1000000 initial=1000000 backoff=100ms'
              . ' backoff_max=100ms park=100ms park_max=100ms;'
              . ' mcp_revive on limit=1000000;',
    location => 'proxy_read_timeout 300ms; mcp_stream_hold off;');

my %seen;
my ($memory, $turn) = (0, 0);

until (answers() >= $want) {
    my @x = map { request() } 1 .. 150;

    MCP::Exchange::drive(\@x, timeout => 0.6);
    $seen{ substr $_->status || "none", 0, 4 }++ for @x;
    $_->abort for grep { !$_->over } @x;
    $memory = memory_kb($nginx) if ++$turn == 200;
}

my $keepalives = $nginx->keepalives('sent');

diag(answers() . " answers, $keepalives of them to keepalives; statuses: "
     . join ', ', map { "$_: $seen{$_}" } sort keys %seen);

kill 'TERM', $server;
waitpid $server, 0;

# the good server comes in its place, at its own address

$nginx->reload(gone => 1, parts => {
    servers => [$fake->addr],
    upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;' });

my @clients = clients($nginx, 10);

each_client(\@clients, [qw(initialize initialized call)]);
nobody_lingers($nginx, 'after');
all_well('after', [$fake], @clients);
asked_again('after', [$fake], @clients);
is($nginx->peer($fake)->{state}, 'connected', 'after: connected');
is(scalar $nginx->log_lines(qr/exited on signal/), 0, 'no worker died');
no_growth($memory, memory_kb($nginx), 'after') if $memory;
finish();


# ---- the client ----

sub request {
    my $c = client($nginx);
    my $n = rand;

    $c->{session} = 'session-' . int rand 50 if $n > 0.1;

    return $n < 0.1 ? $c->start_initialize
         : $n < 0.2 ? $c->start_get
         : $n < 0.25 ? $c->start_delete
         : $c->start_call;
}


# ---- the server ----

sub answers {
    open my $fh, '<', $counter or return 0;
    return (-s $fh) / 1;
}


sub serve {
    my $listen = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 512,
        ReuseAddr => 1, Blocking => 0) or die "listen: $!\n";
    my $parent = $$;
    my $pid = fork // die "fork: $!\n";

    return $pid if $pid;

    $SIG{TERM} = sub { POSIX::_exit(0) };
    $SIG{PIPE} = 'IGNORE';
    open my $count, '>>', $counter or POSIX::_exit(1);
    $count->autoflush(1);

    my $select = IO::Select->new($listen);
    my %in;

    while (getppid == $parent) {
        for my $fh ($select->can_read(1)) {
            if ($fh == $listen) {
                while (my $new = $listen->accept) {
                    $new->blocking(0);
                    $select->add($new);
                    $in{$new} = '';
                }
                next;
            }

            my $n = sysread $fh, $in{$fh}, 65_536, length $in{$fh};

            if ($n && whole($in{$fh})) {
                syswrite $fh, mutated(answer($in{$fh}));
                print {$count} '.';
                $n = rand() < 0.3;
                $in{$fh} = '';
            }

            next if $n;
            $select->remove($fh);
            delete $in{$fh};
            close $fh;
        }
    }

    POSIX::_exit(0);
}


sub whole {
    my ($in) = @_;

    my $end = index $in, "\r\n\r\n";

    return 0 if $end < 0;
    return length $in >= $end + 4
           + ($in =~ /^Content-Length: *(\d+)/mi ? $1 : 0);
}


sub answer {
    my ($in) = @_;

    my ($id) = $in =~ /"id":("[^"]*"|\d+)/;
    my $json = '{"jsonrpc":"2.0","id":' . ($id // 'null') . ',';
    my $kind = rand;

    $json .= $kind < 0.7 ? '"result":{"tools":[{"name":"x"}]}}'
           : '"error":{"code":-3200' . int(rand 3) . ',"message":"'
             . ('Session not found', 'Bad Request: Server not initialized',
                'Method not found')[rand 3] . '"}}';

    my $status = $kind < 0.7 ? '200 OK'
               : ('200 OK', '404 Not Found', '400 Bad Request',
                  '500 Oops', '503 Busy')[rand 5];
    my $session = $in =~ /"initialize"/
        ? "Mcp-Session-Id: session-" . int(rand 50) . "\r\n" : '';
    my $stream = $in =~ /^GET/ || rand() < 0.3;
    my $body = $stream ? "event: message\ndata: $json\n\n" : $json;
    my $type = $stream ? 'text/event-stream' : 'application/json';
    my $framing = rand;

    return "HTTP/1.1 $status\r\n${session}Content-Type: $type\r\n"
         . ($framing < 0.5 ? 'Content-Length: ' . length($body)
                             . "\r\n\r\n$body"
            : $framing < 0.8 ? "Transfer-Encoding: chunked\r\n\r\n"
                               . sprintf('%x', length $body)
                               . "\r\n$body\r\n0\r\n\r\n"
            : "Connection: close\r\n\r\n$body");
}


sub mutated {
    my ($text) = @_;

    for (1 .. 1 + int rand 4) {
        my $at = int rand length $text;
        my $how = rand;

        $how < 0.4 ? substr($text, $at, 1) = chr int rand 256
      : $how < 0.5 ? substr($text, $at, 1) = ''
      : $how < 0.6 ? substr($text, $at) = ''
      : $how < 0.7 ? substr($text, $at, 0) = substr $text, int rand length $text
      : $how < 0.8 ? substr($text, $at, 0) = "\r\n" x (1 + int rand 3)
      : $how < 0.9 ? substr($text, $at, 1) = ('{', '}', '"', ':', "\0")[rand 5]
      : substr($text, $at, 0) = 'x' x int rand 5000;

        $text = 'H' if $text eq '';
    }

    return $text;
}
