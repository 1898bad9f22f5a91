package MCP::Load;

# Clients that call again and again, in a process of their own, as good ones
# do: after a 404 they start over, after a 503 they wait a while.

use strict;
use warnings;

use MCP::Client ();
use MCP::Exchange ();
use MCP::Util qw(json_data json_text now_ms slurp work_dir);
use POSIX ();

my $count = 0;


# clients: how many; uris: taken in turn; pause: ms between two requests of
# one client; calls: after as many it starts over by itself (50)

sub new {
    my ($class, $nginx, %arg) = @_;

    my $self = bless { pause => 10, calls => 50, uris => ['/mcp'], %arg,
                       owner => $$,
                       file => work_dir() . '/load-' . ++$count }, $class;

    $self->{list} = [map { MCP::Client->new(nginx => $nginx,
        uri => $self->{uris}[$_ % @{ $self->{uris} }]) }
        1 .. $self->{clients}];
    $self->{pid} = fork // die "fork: $!\n";

    if ($self->{pid} == 0) {
        my $end = 0;
        $SIG{$_} = sub { $end = 1 } for qw(HUP INT TERM);

        eval { $self->run(\$end); 1 } or print STDERR "load: $@";
        POSIX::_exit(0);
    }

    return $self;
}


# Ends it and returns what it saw: { status, body, after (Retry-After), began,
# t (end), step, uri } for each request.

sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    kill 'TERM', $pid;
    waitpid $pid, 0;

    return map { json_data($_) } split /\n/, slurp($self->{file});
}


sub DESTROY {
    my ($self) = @_;

    local ($?, $!);
    $self->stop if $self->{owner} == $$;
    return;
}


sub run {
    my ($self, $end) = @_;

    my $parent = getppid;
    my @walks = map { { client => $_, step => 0, at => 0 } }
                @{ $self->{list} };

    open my $out, '>', $self->{file} or die "$self->{file}: $!\n";

    until ($$end || getppid != $parent) {
        for my $walk (@walks) {
            $self->begin($walk) if !$walk->{now} && now_ms() >= $walk->{at};
        }

        my @open = grep { $_ && !$_->over } map { $_->{now} } @walks;

        @open ? MCP::Exchange::turn(\@open, 0.005)
              : select undef, undef, undef, 0.005;

        for my $walk (grep { $_->{now} && $_->{now}->over } @walks) {
            $self->note($out, $walk);
        }
    }

    close $out;
    return;
}


sub begin {
    my ($self, $walk) = @_;

    my $c = $walk->{client};

    $walk->{step} = 0 if $walk->{step} > $self->{calls};
    delete $c->{session} if $walk->{step} == 0;

    $walk->{now} = $walk->{step} == 0 ? $c->start_initialize
                 : $walk->{step} == 1 ? $c->start_initialized
                                      : $c->start_call;
    return;
}


sub note {
    my ($self, $out, $walk) = @_;

    my $x = delete $walk->{now};
    my $status = $x->status;

    $walk->{client}->settle($x);
    print {$out} json_text({
        status => $status, began => $x->{began}, t => $x->{ended},
        step => $walk->{step}, uri => $walk->{client}{uri},
        after => scalar $x->header('Retry-After'), failed => $x->{failed},
        body => $status =~ /^2/ ? '' : $x->body }), "\n";

    $walk->{at} = now_ms() + $self->{pause};
    $walk->{at} += 100 if $status == 503 || $status == 0;
    $walk->{step} = $status == 404 ? 0
                  : $status =~ /^2/ ? $walk->{step} + 1 : $walk->{step};
    return;
}


1;
