package MCP::SdkClient;

# An official client in a process of its own (t/sdk/clients/client.mjs): told a
# word, it answers with { ok, text }.  And the inspector, which is told once.

use strict;
use warnings;

use IO::Select ();
use IPC::Open2 qw(open2);
use MCP::Process qw(spawn);
use MCP::Util qw(json_data now_ms project_root slurp work_dir);

my $folder = project_root() . '/t/sdk/clients';
my $modules = "$folder/node_modules";
my $inspector = "$modules/\@modelcontextprotocol/inspector/clients/launcher"
                . '/build/index.js';
my $conformance = "$modules/\@modelcontextprotocol/conformance/dist/index.js";
my $count = 0;
my @running;


# Why there are none, or undef.

sub missing {
    return -e "$modules/.installed" ? undef : 'no clients (make sdk)';
}


# kind of client.mjs, url

sub new {
    my ($class, $kind, $url) = @_;

    local $ENV{MCP_REMOTE_CONFIG_DIR} = work_dir() . '/remote-' . ++$count;
    local $ENV{HOME} = work_dir();

    my $self = bless { kind => $kind, url => $url, buf => '', owner => $$ },
                     $class;

    $self->{pid} = open2($self->{out}, $self->{in}, 'node',
                         "$folder/client.mjs", $kind, $url);
    $self->{in}->autoflush(1);
    push @running, $self;

    return $self;
}


sub say {
    my ($self, $word) = @_;

    local $SIG{PIPE} = 'IGNORE';

    print { $self->{in} } "$word\n";
    return;
}


# The answer to the word said last.

sub answer {
    my ($self) = @_;

    my $end = now_ms() + 25_000;
    my $select = IO::Select->new($self->{out});

    while (index($self->{buf}, "\n") < 0) {
        return { ok => 0, text => 'silent' }
            if now_ms() > $end || ($select->can_read(1)
               && !sysread $self->{out}, $self->{buf}, 65_536,
                           length $self->{buf});
    }

    my ($line, $rest) = split /\n/, $self->{buf}, 2;

    $self->{buf} = $rest;
    return json_data($line) // { ok => 0, text => $line };
}


# All are told a word at once; [answers].

sub all_say {
    my ($word, @clients) = @_;

    $_->say($word) for @clients;
    return [map { $_->answer } @clients];
}


sub close {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    local $?;
    @running = grep { $_ != $self } @running;
    CORE::close $self->{in};
    kill 'KILL', $pid unless $self->answer->{ok};
    waitpid $pid, 0;
    return;
}


# ---- programs that run once: what they print ----

sub run_once {
    my (@command) = @_;

    my $file = work_dir() . '/once-' . ++$count . '.log';

    local $ENV{HOME} = work_dir();
    local $?;

    my $pid = spawn($file, 'timeout', 60, 'node', @command);

    waitpid $pid, 0;
    return ($? == 0, slurp($file));
}


sub inspect {
    my ($url, @what) = @_;

    my ($ok, $text) = run_once($inspector, '--cli', $url, '--transport',
                               'http', @what);

    return { ok => $ok, text => $text =~ s/\s+/ /gr };
}


# The lines of the suite that tell what passed.

sub conform {
    my ($url) = @_;

    my (undef, $text) = run_once($conformance, 'server', '--url', $url);

    $text =~ s/\e\[[\d;]*m//g;
    return grep { /^\s*[\x{2713}\x{2717}]|^\s*(?:\xe2\x9c\x93|\xe2\x9c\x97)/ }
           split /\n/, $text;
}


END {
    my $code = $?;

    for my $self (grep { $_->{owner} == $$ } @running) {
        kill 'KILL', $self->{pid};
        waitpid $self->{pid}, 0;
    }

    $? = $code;
}


1;
