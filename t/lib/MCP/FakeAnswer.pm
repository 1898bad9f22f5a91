package MCP::FakeAnswer;

# Turns one request and one behaviour into a plan: the list of steps the
# server's loop takes.  Steps: [write => bytes], [wait => ms], [done],
# [close], [reset], [stream => {heartbeat, chunked}], [hang].
#
# Behaviour, all optional:
#   delay       ms before the first byte
#   hang        1: never answer; body: half of the body, then nothing
#   close       before, header, body: end the connection there
#   reset       before, header, body: the same with a RST
#   raw         bytes sent in place of an answer, the connection is closed
#               (reset => 'raw': with a RST); a list: pause ms between each
#   status      HTTP status; headers: [[name, value], ...] added
#   body        bytes of the body; body_bytes: size of a valid long answer
#   type        Content-Type
#   mode        json (default) or sse
#   framing     length (default), chunked, close
#   priming     1: an event with empty data first
#   notify      1: a notification first, or the message given
#   batch       1: the message comes in a JSON array
#   stay_open   1: the event stream is not ended; heartbeat: ms
#   body_delay  ms between head and body
#   error       {code, message} in place of the result; id: another id
#   no_echo     1: leaves Mcp-Session-Id out of the answer
#   end         1: Connection: close
#   keep        1: a DELETE leaves the session as it is
#   chop        0 .. 1: so often the answer is reset after a random byte

use strict;
use warnings;

use Exporter 'import';
use MCP::Util 'json_text';

our @EXPORT_OK = qw(chunk plan);

my %reason = (200 => 'OK', 202 => 'Accepted', 204 => 'No Content',
              302 => 'Found', 400 => 'Bad Request', 401 => 'Unauthorized',
              404 => 'Not Found', 405 => 'Method Not Allowed',
              429 => 'Too Many Requests', 500 => 'Internal Server Error',
              502 => 'Bad Gateway', 503 => 'Service Unavailable');


# answer: { status, message (JSON-RPC, or undef), sessions => [ids] }

sub plan {
    my ($request, $do, $answer) = @_;

    my @wait = $do->{delay} ? [wait => $do->{delay}] : ();

    return (@wait, ['hang']) if ($do->{hang} // '') eq '1';
    return (@wait, ['close']) if ($do->{close} // '') eq 'before';
    return (@wait, ['reset']) if ($do->{reset} // '') eq 'before';
    return (@wait, raw($do)) if defined $do->{raw};

    my @steps = send_answer($request, $do, $answer);

    @steps = chopped(@steps) if rand() < ($do->{chop} // 0);
    return (@wait, @steps);
}


# Any number of bytes of an answer, none and all of them included.

sub chopped {
    my (@steps) = @_;

    my $all = join '', map { $_->[0] eq 'write' ? $_->[1] : () } @steps;
    my $part = substr $all, 0, int rand 1 + length $all;

    return (length $part ? ([write => $part], [wait => 2]) : (), ['reset']);
}


sub raw {
    my ($do) = @_;

    my @pause = [wait => $do->{pause} // 10];
    my $end = ($do->{reset} // '') eq 'raw' ? 'reset' : 'close';
    my ($first, @more) = ref $do->{raw} ? @{ $do->{raw} } : $do->{raw};

    return [write => $first], (map { @pause, [write => $_] } @more),
           $end eq 'reset' ? @pause : (), [$end];
}


sub send_answer {
    my ($request, $do, $answer) = @_;

    my $sse = ($do->{mode} // '') eq 'sse' && $answer->{message}
              && !defined $do->{body};
    my $body = $sse ? event_body($do, $answer) : plain_body($do, $answer);
    my $framing = framing($request, $do);
    my $head = head($do, $answer, $sse, $framing, length $body);
    my $close = $do->{end} || $framing eq 'close' || wants_close($request);

    $head .= "Connection: close\r\n" if $close;
    $head .= "\r\n";

    my @pause = $do->{body_delay} ? [wait => $do->{body_delay}] : ();

    if (my ($op, $where) = cut($do)) {
        return [write => $head], [$op] if $where eq 'header';

        my $half = substr frame($body, $framing), 0, 1 + length($body) / 2;
        return [write => $head], @pause, [write => $half], [$op];
    }

    if ($do->{stay_open}) {
        my $first = $framing eq 'chunked' ? chunk($body) : $body;
        return [write => $head], @pause, [write => $first],
               [stream => { heartbeat => $do->{heartbeat} // 0,
                           chunked => $framing eq 'chunked' }];
    }

    my $whole = frame($body, $framing);

    return @pause ? ([write => $head], @pause, [write => $whole])
                  : [write => $head . $whole],
           $close ? ['close'] : ['done'];
}


sub cut {
    my ($do) = @_;

    return (close => $do->{close}) if $do->{close};
    return (reset => $do->{reset}) if $do->{reset};
    return (hang => $do->{hang}) if $do->{hang};
    return;
}


sub wants_close {
    my ($request) = @_;

    my $connection = $request->header('Connection') // '';

    return $connection !~ /keep-alive/i if $request->{version} eq '1.0';
    return $connection =~ /close/i;
}


sub framing {
    my ($request, $do) = @_;

    my $framing = $do->{framing} // ($do->{stay_open} ? 'chunked' : 'length');

    return 'close' if $framing eq 'chunked' && $request->{version} eq '1.0';
    return $framing;
}


sub head {
    my ($do, $answer, $sse, $framing, $length) = @_;

    my $status = $do->{status} // $answer->{status};
    my $type = $do->{type} // ($sse ? 'text/event-stream'
                               : $length || $do->{stay_open}
                               ? 'application/json' : '');
    my $head = "HTTP/1.1 $status " . ($reason{$status} // 'Status') . "\r\n"
             . "X-Fake: $answer->{name}\r\n";

    $head .= "Content-Type: $type\r\n" if $type ne '';
    $head .= "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n" if $sse;

    unless ($do->{no_echo}) {
        $head .= "Mcp-Session-Id: $_\r\n" for @{ $answer->{sessions} };
    }

    $head .= "$_->[0]: $_->[1]\r\n" for @{ $do->{headers} // [] };

    return $head if $status == 204;

    $head .= "Transfer-Encoding: chunked\r\n" if $framing eq 'chunked';
    $head .= "Content-Length: $length\r\n" if $framing eq 'length';
    return $head;
}


sub message_text {
    my ($do, $answer) = @_;

    my %message = %{ $answer->{message} // return '' };

    $message{id} = $do->{id} if exists $do->{id};

    if ($do->{error}) {
        delete $message{result};
        $message{error} = $do->{error};
    }

    my $text = json_text($do->{batch} ? [\%message] : \%message);
    my $more = ($do->{body_bytes} // 0) - length($text) - 9;

    # spliced in, as JSON::PP takes a second for a megabyte
    $text =~ s/"result":\{/'"result":{"pad":"' . 'x' x $more . '",'/e
        if $more > 0;

    return $text;
}


sub plain_body {
    my ($do, $answer) = @_;

    return $do->{body} // message_text($do, $answer);
}


sub event_body {
    my ($do, $answer) = @_;

    my $body = '';

    $body .= "id: prime-1\ndata: \n\n" if $do->{priming};
    my $notice = $do->{notify};

    $notice = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
        if ($notice // '') eq '1';
    $body .= "event: message\ndata: $notice\n\n" if defined $notice;

    return $body . "event: message\ndata: " . message_text($do, $answer)
           . "\n\n";
}


sub frame {
    my ($body, $framing) = @_;

    return $body if $framing ne 'chunked';

    my $all = '';

    while (length $body) {
        $all .= chunk(substr $body, 0, 16_384, '');
    }

    return $all . "0\r\n\r\n";
}


sub chunk {
    my ($bytes) = @_;

    return '' if $bytes eq '';
    return sprintf("%x\r\n", length $bytes) . $bytes . "\r\n";
}


1;
