package MCP::Browser;

# A headless Chromium, driven over a pair of pipes by its DevTools protocol:
# JSON messages, each ended by a NUL.

use strict;
use warnings;

use Fcntl qw(F_DUPFD);
use IO::Select ();
use JSON::PP ();
use MCP::Process qw(members);
use MCP::Util qw(json_data json_text now_ms slow wait_for work_dir);
use MIME::Base64 qw(decode_base64);
use POSIX ();

my @all;


# The program; false if there is none.

sub program {
    for my $name (qw(chromium chromium-browser google-chrome)) {
        for my $dir (split /:/, $ENV{PATH}) {
            return "$dir/$name" if -x "$dir/$name";
        }
    }

    return;
}


sub new {
    my ($class) = @_;

    my $dir = work_dir() . '/browser';

    pipe my $in, my $to or die "pipe: $!\n";
    pipe my $from, my $out or die "pipe: $!\n";

    my $pid = fork // die "fork: $!\n";

    if ($pid == 0) {
        POSIX::setsid();
        open STDERR, '>', "$dir.log";
        open STDOUT, '>&', \*STDERR;

        # not onto each other

        my $read = fcntl $in, F_DUPFD, 20;
        my $write = fcntl $out, F_DUPFD, 20;

        POSIX::dup2($read, 3);
        POSIX::dup2($write, 4);

        exec program(), '--headless', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--no-first-run',
             '--disable-background-networking', '--disable-component-update',
             '--disable-sync', '--force-device-scale-factor=1',
             "--user-data-dir=$dir", '--remote-debugging-pipe', 'about:blank'
            or POSIX::_exit(1);
    }

    my $self = bless { pid => $pid, to => $to, from => $from, buf => '',
                       id => 0, events => [], owner => $$ }, $class;

    push @all, $self;
    return $self;
}


# Opens a page and watches it.

sub open_page {
    my ($self, $url) = @_;

    my $target = $self->call('Target.createTarget', { url => 'about:blank' });

    $self->{session} = $self->call('Target.attachToTarget',
        { targetId => $target->{targetId}, flatten => JSON::PP::true() }
        )->{sessionId};

    $self->call("$_.enable") for qw(Page Runtime Log Network);
    $self->call('Page.navigate', { url => $url });
    return;
}


# Sends one command and returns its result.

sub call {
    my ($self, $method, $params) = @_;

    my $id = ++$self->{id};
    my %message = (id => $id, method => $method, params => $params // {});

    $message{sessionId} = $self->{session} if $self->{session};
    syswrite $self->{to}, json_text(\%message) . "\0";

    my $end = now_ms() + 20_000 * slow();

    while (now_ms() < $end) {
        my $answer = $self->message(1) or next;

        if (($answer->{id} // 0) == $id) {
            die "$method: $answer->{error}{message}\n" if $answer->{error};
            return $answer->{result};
        }

        push @{ $self->{events} }, $answer if $answer->{method};
    }

    die "$method: the browser does not answer\n";
}


sub message {
    my ($self, $timeout) = @_;

    while ($self->{buf} !~ /\0/) {
        IO::Select->new($self->{from})->can_read($timeout) or return;
        sysread $self->{from}, $self->{buf}, 65536, length $self->{buf}
            or die "the browser is gone\n";
    }

    my ($text, $rest) = split /\0/, $self->{buf}, 2;

    $self->{buf} = $rest;
    return json_data($text);
}


# The value of an expression in the page.

sub value {
    my ($self, $js) = @_;

    my $answer = $self->call('Runtime.evaluate',
        { expression => $js, returnByValue => JSON::PP::true(),
          awaitPromise => JSON::PP::true() });

    die "$js: $answer->{exceptionDetails}{text}\n"
        if $answer->{exceptionDetails};
    return $answer->{result}{value};
}


sub wait_value {
    my ($self, $js, $timeout) = @_;

    return wait_for(sub { $self->value($js) }, $timeout, 50);
}


# All that happened; of one kind.

sub events {
    my ($self, $method) = @_;

    return map { $_->{params} }
           grep { $_->{method} eq $method } @{ $self->{events} };
}


# What a developer would see in red.

sub faults {
    my ($self) = @_;

    return map({ $_->{exceptionDetails}{exception}{description}
                 // $_->{exceptionDetails}{text} }
               $self->events('Runtime.exceptionThrown')),
           map({ "$_->{type}: " . json_text($_->{args}) }
               grep { $_->{type} =~ /error|warning|assert/ }
               $self->events('Runtime.consoleAPICalled')),
           map({ "$_->{level}: $_->{text}" }
               grep { $_->{level} =~ /error|warning/ }
               map { $_->{entry} } $self->events('Log.entryAdded'));
}


sub requested {
    my ($self) = @_;

    return map { $_->{request}{url} }
           $self->events('Network.requestWillBeSent');
}


sub look {
    my ($self, $width, $height, $scheme) = @_;

    $self->call('Emulation.setDeviceMetricsOverride',
        { width => $width, height => $height, deviceScaleFactor => 1,
          mobile => $width < 500 ? JSON::PP::true() : JSON::PP::false() });
    $self->call('Emulation.setEmulatedMedia',
        { features => [{ name => 'prefers-color-scheme',
                         value => $scheme // 'light' }] });
    return;
}


sub screenshot {
    my ($self, $file) = @_;

    my $answer = $self->call('Page.captureScreenshot', { format => 'png' });

    open my $fh, '>:raw', $file or die "$file: $!\n";
    print {$fh} decode_base64($answer->{data});
    close $fh or die "$file: $!\n";
    return;
}


sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    local $?;
    kill 'KILL', members($pid), $pid;
    waitpid $pid, 0;
    return;
}


END { $_->stop for grep { $_->{owner} == $$ } @all }


1;
