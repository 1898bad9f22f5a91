#!/usr/bin/perl

# Every example is a configuration that nginx loads, and with fake servers in
# place of its own one that works: sessions are learned, the status says so.
# So does every configuration printed in README.md and docs/.

use lib 't/lib';
use MCP::Conf qw(module_file);
use MCP::Process qw(members spawn);
use MCP::Test;
use MCP::Util qw(free_port json_data project_root slurp work_dir);

my @fake = fakes(3);
my $version = MCP::Nginx->version;
my $root = project_root();
my $files = join ' ', 'access_log default.log;',
            map { "${_}_temp_path temp_$_;" }
            qw(client_body proxy fastcgi uwsgi scgi);

my %needs = ('resolve.conf' => 1_027_003);

# not with servers of ours: they speak no TLS, or are found by name

my %load_only = map { $_ => 1 } qw(resolve.conf tls-upstream.conf);
my (%example, $count, $running);

for my $file (glob "$root/examples/*.conf") {
    my ($name) = $file =~ m{([^/]+)$};

    $example{$name} = slurp($file);
}

cmp_ok(scalar keys %example, '>=', 8, 'examples are there');

for my $name (sort keys %example) {
    SKIP: {
        skip("$name: not on this nginx", 1) if $version < ($needs{$name} // 0);
        loads($name, $example{$name});
        works($name, $example{$name}) unless $load_only{$name};
    }
}

documented($_) for "$root/README.md", glob "$root/docs/*.md";

variables();

finish();


END {
    local $?;
    kill 'KILL', members($running) if $running;
}


# A folder in which the text runs as nginx.conf, with ports of its own.

sub folder {
    my ($text, @servers) = @_;

    my $dir = work_dir() . '/example-' . ++$count;
    my $port = free_port();
    my $module = module_file();

    mkdir $_ or die "$_: $!\n" for $dir, "$dir/modules";

    if ($module) {
        symlink $module, "$dir/modules/ngx_mcp_keepalive_module.so";

    } else {
        $text =~ s/^load_module .*\n//mg;
    }

    $text =~ s/\blisten +[^;]+;/listen 127.0.0.1:$port;/g;
    $text =~ s{/var/log/nginx/}{$dir/}g;
    $text =~ s/^ *(?:pid|\w+_temp_path|daemon) .*\n//mg;
    $text =~ s/^http \{\n/http {\n$files\n/m;

    for my $addr (@servers) {
        $text =~ s/\bserver +(?!\{|127\.0\.0\.1:\d+ ours)\S+?(?=[ ;])/server $addr ours/;
    }

    $text =~ s/ ours//g;

    open my $fh, '>', "$dir/nginx.conf" or die "$dir/nginx.conf: $!\n";
    print {$fh} 'daemon off; pid nginx.pid; ', $> == 0 ? 'user root; ' : '',
                $text;
    close $fh or die "$dir/nginx.conf: $!\n";

    return ($dir, $port);
}


sub command {
    my ($dir, @more) = @_;

    return (MCP::Nginx::binary(), '-p', "$dir/", '-e', "$dir/error.log",
            '-c', "$dir/nginx.conf", @more);
}


sub loads {
    my ($name, $text) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($dir) = folder($text);
    my $pid = spawn("$dir/output", command($dir, '-t'));

    waitpid $pid, 0;
    is($?, 0, "$name loads") or diag(slurp("$dir/output"));
    unlike(slurp("$dir/output"), qr/\[(?:warn|error)\]/, 'without a warning');
    return;
}


sub fetch {
    my ($port, $uri) = @_;

    my $x = MCP::Exchange->new(port => $port, bytes =>
        "GET $uri HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

    MCP::Exchange::drive([$x], timeout => 2);
    return $x;
}


sub running {
    my ($name, $text, $code) = @_;

    my ($dir, $port) = folder($text, map { $_->addr } @fake);
    my $pid = $running = spawn("$dir/output", command($dir));

    ok(wait_for(sub { fetch($port, '/status')->status == 200 }, 10),
       "$name runs") or diag(slurp("$dir/output"), slurp("$dir/error.log"));

    $code->($port, $dir);

    kill 'QUIT', $pid;
    waitpid $pid, 0;
    is($?, 0, 'and ends');
    undef $running;
    unlike(slurp("$dir/error.log") =~ s/.* limiting requests, .*//gr,
           qr/\[(?:alert|emerg|crit|error)\]/,
           'with nothing bad in its log');
    return;
}


sub works {
    my ($name, $text) = @_;

    running($name, $text, sub {
        my ($port, $dir) = @_;

        my @c = map { MCP::Client->new(port => $port) } 1 .. 3;
        my @status = map { $_->open_session(2)->status } @c;

        is("@status", '200 200 200', 'sessions work');

        my ($up) = values %{ json_data(fetch($port, '/status')->body)
                             ->{upstreams} };

        is($up->{sessions}{ready}, 3, 'and are learned');
        is(fetch($port, '/metrics')->body =~ /_sessions_ready\{.*\} 3$/m, 1,
           'the metrics say so') if $text =~ m{location = /metrics};
    });
    return;
}


# Whole configurations in the documentation, as a user would copy them.

sub documented {
    my ($file) = @_;

    my ($name) = $file =~ m{([^/]+)$};
    my @conf = grep { /^events\b/m }
               slurp($file) =~ /^```nginx\n(.*?)^```$/msg;

    loads("$name: a configuration", $_) for @conf;
    works("$name: a configuration", $_) for @conf;

    # parts of one

    my $frame = "load_module modules/ngx_mcp_keepalive_module.so;\n"
              . "events {}\nhttp {\n%s}\n";

    for my $part (grep { !/^events\b/m }
                  slurp($file) =~ /^```nginx\n(.*?)^```$/msg)
    {
        $part = "server { listen 80; $part}\n" if $part =~ /^location/;
        loads("$name: " . ($part =~ /(mcp_\w+)/)[0], sprintf $frame, $part);
    }

    return;
}


# The log is JSON whatever a client sends, and tells what was called.

sub variables {
    running('variables.conf', $example{'variables.conf'}, sub {
        my ($port, $dir) = @_;

        my $c = MCP::Client->new(port => $port);

        $c->open_session;
        $c->call('search');
        $c->rpc("tools/\"call\\");

        ok(wait_for(sub { slurp("$dir/access.log") =~ /call\\/ }, 5),
           'logged');

        my @line = map { json_data($_) } grep { /"method":"\w/ }
                   split /\n/, slurp("$dir/access.log");

        is(scalar(grep { !$_ } @line), 0, 'each line is JSON');

        my ($call) = grep { $_->{tool} eq 'search' } @line;

        is($call->{method}, 'tools/call', 'the method');
        like($call->{session}, qr/^[0-9a-f]{12}$/, 'the session');
        is($call->{peer}, $fake[0]->addr, 'the peer');
        is($call->{verdict}, 'ok', 'the verdict');
        is($line[-1]{method}, 'tools/"call\\', 'odd ones, too');

        my $list = sub { $c->start_list };
        my @many = map { $list->() } 1 .. 60;

        MCP::Exchange::drive(\@many, timeout => 10);
        cmp_ok(scalar(grep { $_->status == 429 } @many), '>=', 30,
               'a session that asks too much is told so');
    });
    return;
}
