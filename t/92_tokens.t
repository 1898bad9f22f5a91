#!/usr/bin/perl

# 50 sessions whose clients have a new token every second, with keepalives every
# 300 ms, at a server that ends a session for a token it has seen replaced: none
# ends.  MCP_TOKENS=30 is for 30 seconds.

use lib 't/lib';
use MCP::Test;
use MCP::Exchange ();
use MCP::Fake ();

my $turns = $ENV{MCP_TOKENS} || 10;

# What is on its way when a token is replaced, and how long a busy server may
# leave it unread, in ms: well below an interval, after which a keepalive with
# a wrong one would come.
my $way = 120 * slow();

my $fake = fake();

$fake->sessions(tokens => $way);
$fake->rule(when => { rpc => 'prompts/list' }, do => { delay => 250 });

my $nginx = nginx(
    fakes => [$fake], workers => 2,
    upstream => 'mcp_keepalive zone=mcp:1m interval=300ms rate=500;'
              . ' mcp_keepalive_pass_header Authorization; keepalive 16;');

my @clients = clients($nginx, 50, keepalive => 1);
my $n = 0;

new_token($_) for @clients;
each_client(\@clients, [qw(initialize initialized call)]);

my $next = now_ms();
my @slow;

for (1 .. $turns) {
    $next += 1000 * slow();
    wait_for(sub { now_ms() >= $next }, 2);

    # some wait for an answer they asked for with the token before

    @slow = map { client($nginx, session => $_->session, version =>
                         '2025-06-18', headers => $_->{headers})
                      ->start_rpc('prompts/list') } @clients[0 .. 9];
    MCP::Exchange::drive(\@slow, timeout => 0.03);

    new_token($_) for @clients;
    each_client(\@clients, ['call']);

    MCP::Exchange::drive(\@slow, timeout => 2);
}

my @bad = grep { $_->status != 200 } each_client(\@clients, ['call']);
my $said = $nginx->upstream->{sessions};

is(scalar @bad, 0, 'all sessions are there') or diag($bad[0]->text);
is("$said->{learned} $said->{active} $said->{lost}", '50 50 0',
   'none was lost');
is($nginx->keepalives('auth') + $nginx->keepalives('session_lost'), 0,
   'no keepalive was refused');

my @late = late();
my $sent = $fake->keepalives;

is(scalar @late, 0, 'no keepalive with an older token')
    or diag(join "\n", @late[0 .. ($#late < 9 ? $#late : 9)]);
cmp_ok($sent, '>=', 50 * $turns, 'and there were many');
note("$sent keepalives, " . 50 * $turns . ' tokens');
cmp_ok($nginx->keepalives('ok'), '>=', $sent - 8, 'ok');

finish();


sub new_token {
    my ($client) = @_;

    $client->{headers} = [['Authorization', 'Bearer tok-of-92-' . ++$n]];
    return;
}


sub number_of {
    my ($event) = @_;

    my ($token) = MCP::Fake::values_of($event, 'Authorization');

    return ($token // '') =~ /-(\d+)$/ ? $1 : 0;
}


# Keepalives with a token that was older than the newest answered by then.

sub late {
    my (%asked, %newest, @late);

    for my $event ($fake->events) {
        my $session = $event->{session} // next;

        if ($event->{ev} eq 'request' && !$event->{keepalive}) {
            $asked{"$event->{conn}/$event->{n}"} = $event;
        }
        elsif ($event->{ev} eq 'answered') {
            my $request = $asked{"$event->{conn}/$event->{n}"} // next;
            my $number = number_of($request);

            $newest{$session} = [$number, $event->{t}]
                if $number > ($newest{$session} // [0])->[0];
        }
        elsif ($event->{ev} eq 'request' && $newest{$session}) {
            my ($number, $t) = @{ $newest{$session} };

            push @late, "$event->{t}: " . number_of($event)
                        . " after $number, answered at $t"
                if number_of($event) < $number && $event->{t} > $t + $way;
        }
    }

    return @late;
}
