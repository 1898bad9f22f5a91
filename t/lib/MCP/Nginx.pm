package MCP::Nginx;

# Starts, watches and ends one nginx: new(parts of MCP::Conf, allow => [..],
# valgrind => 1, secrets => 1: it is told to write some).  stop() is a test by
# itself: ended in time, nothing left running, no bad line in the log, no token
# or session id in any file or on a status page.

use strict;
use warnings;

use MCP::Conf qw(conf_text);
use MCP::Exchange ();
use MCP::Log ();
use MCP::Process qw(members spawn);
use MCP::Secrets ();
use MCP::Util qw(json_data project_root slurp wait_for work_dir);
use Test::More ();

my @running;
my $count = 0;


sub binary { return $ENV{TEST_NGINX_BINARY} || '/usr/sbin/nginx' }


# 1.22.1 is 1022001.

sub version {
    my $text = `@{[ binary() ]} -v 2>&1`;

    return 0 unless $text =~ m{nginx/(\d+)\.(\d+)\.(\d+)};
    return $1 * 1_000_000 + $2 * 1000 + $3;
}


sub new {
    my ($class, %arg) = @_;

    my $self = $class->prepare(%arg);

    $self->start;
    return $self;
}


# Everything but the start: the folder, the ports, the file.

sub prepare {
    my ($class, %arg) = @_;

    my $self = bless { workers => 1, valgrind => $ENV{MCP_VALGRIND}, %arg },
                     $class;

    $self->{number} = ++$count;
    $self->{dir} = work_dir() . "/nginx-$count";
    mkdir $self->{dir} or die "$self->{dir}: $!\n";

    $self->{log} = MCP::Log->new("$self->{dir}/error.log",
                                 "$self->{dir}/output.log");
    $self->{log}->allow(@{ $self->{allow} // [] });
    $self->write_conf;

    return $self;
}


# Writes the configuration again, with other parts; for reload().

sub write_conf {
    my ($self, %parts) = @_;

    @$self{keys %parts} = values %parts;

    open my $fh, '>', "$self->{dir}/nginx.conf" or die "nginx.conf: $!\n";
    print {$fh} conf_text($self);
    close $fh or die "nginx.conf: $!\n";
    return;
}


sub command {
    my ($self, @more) = @_;

    my @valgrind = !$self->{valgrind} ? () :
        ('valgrind', '--leak-check=full', '--trace-children=yes',
         '--errors-for-leak-kinds=definite', '--num-callers=30',
         "--log-file=$self->{dir}/vg.%p.log",
         '--suppressions=' . project_root() . '/t/lib/valgrind.supp');

    return (@valgrind, binary(), '-p', $self->{dir},
            '-e', "$self->{dir}/error.log",
            '-c', "$self->{dir}/nginx.conf", @more);
}


# nginx -t: (passed, what it said).  nginx says it on standard error.

sub config_test {
    my ($class, %arg) = @_;

    my $self = $class->prepare(%arg, valgrind => 0);
    my $output = "$self->{dir}/output.log";
    my $pid = spawn($output, $self->command('-t'));

    waitpid $pid, 0;
    return ($? == 0, slurp($output));
}


sub start {
    my ($self) = @_;

    $self->{pid} = spawn("$self->{dir}/output.log", $self->command);
    $self->{owner} = $$;
    push @running, $self;

    return if wait_for(sub { $self->up || $self->ended }, 10)
              && $self->{pid};

    Test::More::diag($_) for $self->{log}->lines;
    die "nginx did not start\n";
}


sub up {
    my ($self) = @_;

    return $self->workers == $self->{workers}
           && (!($self->{status} // 1) || $self->fetch('/up')->status == 200);
}


sub ended {
    my ($self) = @_;

    return 0 if waitpid($self->{pid}, 1) == 0;     # WNOHANG

    delete $self->{pid};
    return 1;
}


sub port { my ($self, $n) = @_; return $self->{ports}{ 'port' . ($n // '') } }


# ---- signals ----

sub workers { return $_[0]{log}->workers }


sub signal {
    my ($self, $signal) = @_;

    kill $signal, $self->{pid};
    return;
}


# Returns when the new workers run and the old ones were told to go;
# gone => 1: when they have gone.

sub reload {
    my ($self, %arg) = @_;

    my %old = map { $_ => 1 } $self->workers;

    $self->write_conf(%{ $arg{parts} }) if $arg{parts};
    $self->signal('HUP');

    my $ok = wait_for(sub {
        my @now = $self->workers;
        my $new = grep { !$old{$_} } @now;

        return 0 if $new < $self->{workers};
        return @now == $new if $arg{gone};

        my $told = $self->{log}->lines(qr/gracefully shutting down/);
        return $told >= keys(%old) || @now == $new;
    }, $arg{timeout} // 10);

    Test::More::ok(0, 'nginx reloaded') unless $ok;
    return $ok;
}


sub kill_worker {
    my ($self, $pid) = @_;

    $self->{log}->allow(
        qr/\[alert\].* worker process $pid exited on signal 9/,
        qr/\[alert\].* shared memory zone .* was locked by $pid/);
    kill 'KILL', $pid;
    return;
}


# ---- the end ----

sub stop {
    my ($self, $signal) = @_;

    my $pid = $self->{pid} or return;

    local $?;
    @running = grep { $_ != $self } @running;

    my @shown = $self->status_secrets;

    kill $signal // 'QUIT', $pid;

    my $ended = wait_for(sub { $self->ended }, 10);
    my @left = wait_for(sub { !members($pid) }, 2) ? () : members($pid);

    kill 'KILL', @left if @left;
    waitpid $pid, 0 unless $ended;
    delete $self->{pid};

    return $self->check_log($ended ? () : 'nginx did not end in time',
                            map({ "process $_ was left" } @left), @shown);
}


sub check_log {
    my ($self, @faults) = @_;

    push @faults, $self->{log}->bad_lines, $self->valgrind_faults;

    # at level debug nginx writes all headers

    push @faults, MCP::Secrets::in_files($self->{dir})
        unless $self->{secrets} || ($self->{level} // '') eq 'debug';

    local $Test::Builder::Level = $Test::Builder::Level + 2;
    my $ok = Test::More::ok(!@faults, "nginx $self->{number} ended clean");

    Test::More::diag($_) for @faults[0 .. ($#faults < 20 ? $#faults : 20)];
    return $ok;
}


sub status_secrets {
    my ($self) = @_;

    return if !($self->{status} // 1) || !($self->{module} // 1)
              || $self->{secrets};

    return map { "the status shows $_" }
           map { MCP::Secrets::in_text($self->fetch("/status$_")->body) }
           '', '?format=prometheus', '?format=html';
}


sub valgrind_faults {
    my ($self) = @_;

    my @faults;

    for my $file (glob "$self->{dir}/vg.*.log") {
        my $text = slurp($file);

        push @faults, $text if $text =~ /ERROR SUMMARY: [1-9]/;
    }

    return @faults;
}


sub stop_all {
    my @all = grep { $_->{owner} == $$ } @running;

    $_->stop for @all;
    return;
}


# Without tests, for the end of a test file that died.

sub kill_all {
    for my $self (grep { $_->{owner} == $$ && $_->{pid} } @running) {
        kill 'KILL', members($self->{pid});
        waitpid $self->{pid}, 0;
    }

    @running = ();
    return;
}


# ---- looking inside ----

# A GET (or method) at the status server.

sub fetch {
    my ($self, $uri, $method, @headers) = @_;

    my $port = $self->{ports}{status};
    my $bytes = ($method // 'GET') . " $uri HTTP/1.1\r\nHost: status\r\n"
              . join('', map { "$_\r\n" } @headers)
              . "Connection: close\r\n\r\n";
    my $x = MCP::Exchange->new(port => $port, bytes => $bytes,
                               head => ($method // '') eq 'HEAD');

    MCP::Exchange::drive([$x], timeout => 5);
    return $x;
}


sub status { return json_data($_[0]->fetch('/status')->body) // {} }


# Of one upstream: its sessions, streams, ... member, or the peer of a fake.

sub upstream {
    my ($self, $name) = @_;

    return ($self->status->{upstreams} // {})->{ $name // 'tools' } // {};
}


sub peer {
    my ($self, $fake, $upstream) = @_;

    my $addr = ref $fake ? $fake->addr : $fake;
    my ($peer) = grep { ($_->{name} // '') eq $addr }
                 @{ $self->upstream($upstream)->{peers} // [] };

    return $peer // {};
}


# One counter of the keepalives, of all peers together.

sub keepalives {
    my ($self, $counter, $upstream) = @_;

    my $sum = 0;

    $sum += ($_->{keepalives} // {})->{$counter} // 0
        for @{ $self->upstream($upstream)->{peers} // [] };

    return $sum;
}


sub connections {
    my ($self) = @_;

    my ($active) = $self->fetch('/stub')->body =~ /Active connections: (\d+)/;

    return $active;
}


sub log_lines {
    my ($self, $pattern) = @_;

    return $self->{log}->lines($pattern);
}


sub access_lines {
    my ($self) = @_;

    return split /\n/, slurp("$self->{dir}/access.log");
}


1;
