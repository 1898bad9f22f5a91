package MCP::Dns;

# A name server that says what it was told last: every name has the given
# IPv4 addresses, for a second.

use strict;
use warnings;

use IO::Socket::INET ();
use MCP::Util qw(slurp work_dir);
use POSIX ();


sub new {
    my ($class, @addresses) = @_;

    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'udp')
        or die "name server: $!\n";
    my $self = bless { port => $socket->sockport, owner => $$,
                       file => work_dir() . '/dns' }, $class;

    $self->set(@addresses);
    $self->{pid} = fork // die "fork: $!\n";

    if ($self->{pid} == 0) {
        $SIG{$_} = 'DEFAULT' for qw(HUP INT TERM);
        serve($socket, $self->{file});
        POSIX::_exit(0);
    }

    return $self;
}


sub addr { return "127.0.0.1:$_[0]{port}" }


sub set {
    my ($self, @addresses) = @_;

    open my $fh, '>', "$self->{file}.new" or die "dns: $!\n";
    print {$fh} "@addresses";
    close $fh or die "dns: $!\n";
    rename "$self->{file}.new", $self->{file} or die "dns: $!\n";
    return;
}


sub serve {
    my ($socket, $file) = @_;

    my $parent = getppid;

    while (getppid == $parent) {
        my $in = '';
        vec($in, fileno $socket, 1) = 1;

        next unless select $in, undef, undef, 0.5;
        next unless defined(my $from = recv $socket, my ($query), 512, 0);

        send $socket, answer($query, split / /, slurp($file)), 0, $from;
    }

    return;
}


# The question comes back as it is; a type other than A has no answers.

sub answer {
    my ($query, @addresses) = @_;

    my ($id) = unpack 'n', $query;
    my ($question, $type) = substr($query, 12) =~ /^(.*?\0(..)..)/s
                            ? ($1, unpack 'n', $2) : ('', 0);
    my @records = $type != 1 ? () :
        map { pack 'nnnNna4', 0xc00c, 1, 1, 1, 4, pack 'C4', split /\./ }
        @addresses;

    return pack('n6', $id, 0x8180, 1, scalar @records, 0, 0)
           . join '', $question, @records;
}


sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    kill 'KILL', $pid;
    waitpid $pid, 0;
    return;
}


sub DESTROY {
    my ($self) = @_;

    local ($?, $!);
    $self->stop if $self->{owner} == $$;
    return;
}


1;
