#!/usr/bin/perl

# The metrics: well-formed, the same numbers as the JSON, and taken by
# promtool and Prometheus where they are installed.

use lib 't/lib';
use MCP::Process qw(members spawn);
use MCP::Test;
use MCP::Util qw(free_port json_data slurp work_dir);

my $fake = fake();
my $dead = fake();

$dead->kill;

my $quoted = 'a\"b\\\\c';               # in nginx.conf: a"b\c
my $nginx = nginx(
    fakes => [$fake, $dead], servers => [$fake->addr], workers => 2,
    http => "upstream \"$quoted\" { server %%fake2%%;"
          . ' mcp_keepalive zone=mcp interval=off; }'
          . "upstream w\xc3\xbcst { server %%fake2%%;"
          . ' mcp_keepalive zone=mcp interval=off; }'
          . 'server { listen 127.0.0.1:%%port2%%;'
          . ' location /any { mcp_status; }'
          . ' location /json { mcp_status json; }'
          . ' location /prom { mcp_status prometheus; }'
          . ' location /html { mcp_status html; } }'
          . 'server { listen 127.0.0.1:%%port3%%; location /metrics'
          . ' { mcp_status prometheus; } }',
    upstream => 'mcp_keepalive zone=mcp:1m interval=150ms;');

my $c = client($nginx);

$c->open_session(1);
eventually(sub { $nginx->keepalives('ok') >= 2 }, 'keepalives run');


# ---- which format ----

my %type = (json => 'application/json', html => 'text/html; charset=utf-8',
            prometheus => 'text/plain; version=0.0.4; charset=utf-8');
my $browser = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';

for my $case (
    ['/any', undef, 'json'], ['/any', '*/*', 'json'],
    ['/any', 'text/plain', 'prometheus'], ['/any', $browser, 'html'],
    ['/any', 'application/openmetrics-text;version=1.0.0,*/*;q=0.1',
     'prometheus'],
    ['/any', 'application/json, text/plain', 'json'],
    ['/any?format=json', $browser, 'json'],
    ['/any?format=prometheus', $browser, 'prometheus'],
    ['/any?format=html', undef, 'html'],
    ['/any?a=b&format=html&c', undef, 'html'],
    ['/json', $browser, 'json'], ['/json?format=html', undef, 'json'],
    ['/prom', $browser, 'prometheus'],
    ['/prom?format=json', undef, 'prometheus'],
    ['/html', 'text/plain', 'html'], ['/html?format=prometheus', undef, 'html'],
    ['/html?format=json', undef, 'json'],
) {
    my ($uri, $accept, $format) = @$case;
    my $x = get($uri, $accept ? "Accept: $accept" : ());

    is($x->header('Content-Type'), $type{$format},
       "$uri" . ($accept ? " Accept: $accept" : ''));
}

for my $path (qw(/any /json /prom /html)) {
    for my $format (qw(xml JSON htm html2), '') {
        is(get("$path?format=$format")->status, 400,
           "$path?format=$format is 400");
    }

    my $head = get($path, undef, 'HEAD');

    is($head->status . $head->body, '200', "HEAD $path");
    cmp_ok($head->header('Content-Length'), '>', 100, 'with its length');
    is($head->header('Cache-Control'), 'no-store', 'never stored');
    is($head->header('X-Content-Type-Options'), 'nosniff', 'nosniff');
    is(get($path, undef, 'POST')->status, 405, "POST $path is 405");
}


# ---- what it says ----

my $text = get('/prom')->body;
my $status = $nginx->status;
my $up = $status->{upstreams}{tools};
my $peer = $up->{peers}[0];
my $at = sprintf '{upstream="tools",peer="%s"', $fake->addr;

well_formed($text);

is(value('sessions_active{upstream="tools"}'), 1, 'sessions');
is(value('sessions_learned_total{upstream="tools"}'), 1, 'a counter');
is(value('zone_size_bytes{zone="mcp"}'), 1_048_576, 'bytes');
is(value("peer_state$at,state=\"connected\"}"), 1, 'the state');
is(value("peer_state$at,state=\"$_\"}"), 0, "not $_")
    for qw(connecting degraded parked);
is(value("peer_budget$at}"), 5, 'the budget');
cmp_ok(value("sent_total$at}"), '>=', 2, 'sent');
cmp_ok(value("verdicts_total$at,verdict=\"ok\"}"), '>=', 2, 'a verdict');
is(value("verdicts_total$at,verdict=\"timeout\"}"), 0, 'one never met');
cmp_ok(value("latency_seconds_count$at}"), '>=', 2, 'latency: count');
like(value("latency_seconds_sum$at}"), qr/^\d+\.\d{3}$/, 'sum in seconds');
like(value("peer_state_age_seconds$at}"), qr/^\d+\.\d{3}$/, 'age in seconds');
is(value('generation'), 1, 'without a label');
like($text, qr/^mcp_keepalive_build_info\{module="\S+",nginx="\S+"\} 1$/m,
     'versions');
like($text, qr/^mcp_keepalive_sessions_active\{upstream="a\\"b\\\\c"\} 0$/m,
     'a label is escaped');
like($text, qr/\{upstream="w\\\\xC3\\\\xBCst"\}/, 'bytes that are not ASCII');
ok($status->{upstreams}{'a"b\c'}, 'the same upstream in JSON');
ok($status->{upstreams}{'w\xC3\xBCst'}, 'and the other');
unlike($text, qr/\Q@{[ $c->session ]}/, 'no session');

cmp_ok($peer->{latency}{count}, '>=', 2, 'JSON: latency');
cmp_ok($peer->{latency}{sum_ms}, '>=', 0, 'its sum');

# only answers have a latency; one that is late is counted with its time

my $before = $nginx->peer($fake)->{latency};

$fake->rule(when => { keepalive => 1 }, do => { delay => 80 });
eventually(sub {
    my $now = $nginx->peer($fake)->{latency};

    return $now->{count} >= $before->{count} + 3
           && $now->{sum_ms} - $before->{sum_ms}
              >= 60 * ($now->{count} - $before->{count} - 1);
}, 'slow answers have a latency');
$fake->clear;

is_deeply([sort(names(get('/prom')->body))],
          [sort(names(get('/any?format=prometheus')->body))],
          'the same metrics each time');


# ---- Prometheus ----

SKIP: {
    my $promtool = tool('promtool') or skip('no promtool', 2);
    my $file = work_dir() . '/metrics';
    my $output = "$file.promtool";

    open my $fh, '>', $file or die "$file: $!\n";
    print {$fh} get('/prom')->body;
    close $fh or die "$file: $!\n";

    is(system("$promtool check metrics < $file > $output 2>&1"), 0,
       'promtool check metrics');
    is(slurp($output), '', 'has nothing to say');
}

SKIP: {
    my $prometheus = tool('prometheus') or skip('no prometheus', 3);

    scraped($prometheus);
}

finish();


sub get {
    my ($uri, $header, $method) = @_;

    my $bytes = ($method // 'GET') . " $uri HTTP/1.1\r\nHost: x\r\n"
              . ($header ? "$header\r\n" : '') . "Connection: close\r\n\r\n";
    my $x = MCP::Exchange->new(port => $nginx->port(2), bytes => $bytes,
                               head => ($method // '') eq 'HEAD');

    MCP::Exchange::drive([$x]);
    return $x;
}


# Every sample has its family right before it, nothing is told twice.

sub well_formed {
    my ($lines) = @_;

    my (%help, %type, %seen, %ended, @faults);
    my $family = '';

    for (split /\n/, $lines) {
        if (/^# HELP (\w+) \S/) {
            push @faults, "twice: $_" if $help{$1}++;
            next;
        }

        if (/^# TYPE (\w+) (gauge|counter|summary)$/) {
            push @faults, "twice: $_" if $type{$1};
            ($family, $type{$1}) = ($1, $2);
            push @faults, "no help: $_" unless $help{$1};
            push @faults, "no _total: $_" if $2 eq 'counter'
                                             && $1 !~ /_total$/;
            next;
        }

        my ($metric, $labels) =
            /^(mcp_keepalive_\w+)(\{.*\})? \d+(?:\.\d+)?$/;

        if (!defined $metric) {
            push @faults, "what is this: $_";
            next;
        }

        my $name = ($type{$family} // '') eq 'summary'
                   ? $metric =~ s/_(?:sum|count)$//r : $metric;

        push @faults, "not of $family: $_" if $name ne $family;
        push @faults, "twice: $_" if $seen{ $metric . ($labels // '') }++;
    }

    is_deeply(\@faults, [], 'well-formed');
    return;
}


sub value {
    my ($sample) = @_;

    my ($value) = $text =~ /^mcp_keepalive_\Q$sample\E (\S+)$/m;

    return $value // 'none';
}


sub names { return map { /^(\S+) / ? $1 : () } grep { !/^#/ } split /\n/, $_[0] }


sub tool {
    my ($name) = @_;

    for my $dir (split(/:/, $ENV{PATH}), $ENV{MCP_PROMETHEUS} // ()) {
        return "$dir/$name" if -x "$dir/$name";
    }

    return;
}


# Twice: the second scrape sees what the first one changed.

sub scraped {
    my ($prometheus) = @_;

    my $dir = work_dir() . '/prometheus';
    my $port = free_port();
    my $target = '127.0.0.1:' . $nginx->port(3);

    mkdir $dir or die "$dir: $!\n";

    open my $fh, '>', "$dir/conf.yml" or die "$dir/conf.yml: $!\n";
    print {$fh} "global: {scrape_interval: 1s}\nscrape_configs:\n"
              . "- {job_name: mcp, static_configs: [{targets: ['$target']}]}\n";
    close $fh or die "$dir/conf.yml: $!\n";

    my $pid = spawn("$dir/log", $prometheus, "--config.file=$dir/conf.yml",
                    "--storage.tsdb.path=$dir/data",
                    "--web.listen-address=127.0.0.1:$port");

    my $ask = sub {
        my ($query) = @_;

        my $x = MCP::Exchange->new(port => $port, bytes =>
            "GET /api/v1/query?query=$query HTTP/1.1\r\nHost: x\r\n"
            . "Connection: close\r\n\r\n");

        MCP::Exchange::drive([$x], timeout => 2);
        my $data = json_data($x->body) // return;
        return map { $_->{value}[1] } @{ $data->{data}{result} };
    };

    eventually(sub { ($ask->('up') // 0) == 1 }, 'Prometheus: a scrape', 20);
    eventually(sub {
        my ($n) = $ask->('count_over_time(mcp_keepalive_sent_total'
                         . '%7Bupstream="tools"%7D%5B1m%5D)');
        return ($n // 0) >= 2;
    }, 'and another', 20);
    cmp_ok(($ask->('sum(mcp_keepalive_peer_state)'))[0] // 0, '==', 3,
           'one state a peer');

    diag(slurp("$dir/log")) unless Test::More->builder->is_passing;

    kill 'KILL', members($pid);
    waitpid $pid, 0;
    return;
}
