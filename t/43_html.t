#!/usr/bin/perl

# The page for browsers: its headers, and in Chromium, if there is one, what it
# shows as servers come and go.  MCP_SCREENSHOTS=FOLDER keeps pictures.

use lib 't/lib';
use Digest::SHA qw(sha256_base64);
use MCP::Browser ();
use MCP::Test;

my ($fake, $idle, $shaky, $dead) = fakes(4);

$_->kill for $shaky, $dead;

my $server = 'location /%s { proxy_pass http://%s; }';
my $nginx = nginx(
    fakes => [$fake, $idle, $shaky, $dead], servers => [$fake->addr],
    http => 'upstream idle { server %%fake2%%; mcp_keepalive zone=mcp; }'
          . 'upstream shaky { server %%fake3%%; mcp_keepalive zone=mcp;'
          . ' mcp_reconnect backoff=60s; }'
          . 'upstream dead { server %%fake4%%; mcp_keepalive zone=mcp;'
          . ' mcp_reconnect initial=1 backoff=100ms park=1h; }',
    upstream => 'mcp_keepalive zone=mcp:1m interval=150ms timeout=200ms;'
              . 'mcp_reconnect backoff=20s;',
    server => join '', map { sprintf $server, $_, $_ } qw(idle shaky dead));


# ---- headers ----

my $page = $nginx->fetch('/status?format=html');
my $policy = $page->header('Content-Security-Policy');

is($page->status, 200, 'GET');
is($page->header('Content-Type'), 'text/html; charset=utf-8', 'its type');
is($page->header('Cache-Control'), 'no-store', 'never stored');
is($page->header('X-Content-Type-Options'), 'nosniff', 'nosniff');
is($page->header('Referrer-Policy'), 'no-referrer', 'no referrer');
is(scalar(my @all = $page->header('Content-Security-Policy')), 1,
   'one policy');
like($policy, qr/^default-src 'none';/, 'nothing by default');
unlike($policy, qr/unsafe|\*|https?:/, 'nothing unsafe, no other host');
like($policy, qr/\Q$_\E(?:;|$)/, $_)
    for "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
        "frame-ancestors 'none'";

for my $tag (qw(script style)) {
    my ($text) = $page->body =~ m{<$tag>(.*)</$tag>}s;

    like($policy, qr/$tag-src 'sha256-\Q@{[ sha256_base64($text) ]}\E='/,
         "the hash of the $tag");
}

unlike($page->body, qr/ (?:style|on\w+)="/, 'no style or script elsewhere');
unlike($page->body, qr{(?:src|href)="(?!data:,|\?format=json)|url\(|\@import},
       'nothing to be fetched');
like($page->body, qr/<html lang="en">/, 'a language');
is($nginx->fetch('/status?format=html', 'HEAD')->body, '', 'HEAD');
is($nginx->fetch('/status?format=html')->body, $page->body,
   'the same each time');


# ---- in a browser ----

SKIP: {
    skip('no Chromium', 1) unless MCP::Browser::program();
    subtest browser => \&browser;
}

finish();


sub browser {
    my $c = client($nginx);

    $c->open_session(1);
    client($nginx, uri => "/$_")->initialize for qw(shaky dead);

    eventually(sub { $nginx->keepalives('ok') >= 2 }, 'keepalives run');
    eventually(sub {
        join(' ', map { $nginx->upstream($_)->{peers}[0]{state} }
                  qw(tools idle shaky dead))
        eq 'connected connecting degraded parked';
    }, 'every state');

    my $browser = MCP::Browser->new;
    my $url = "http://127.0.0.1:$nginx->{ports}{status}/status?format=html";

    $browser->open_page($url);
    $browser->look(1280, 900);

    ok($browser->wait_value('document.querySelectorAll("tbody tr").length'
                            . ' === 4', 15), 'the page shows all peers')
        or diag(explain([$browser->faults]));

    rendered($browser);
    pictures($browser);
    usable($browser);
    killed($browser);

    is_deeply([$browser->faults], [], 'no error in the console');
    is_deeply([grep { !m{^data:|^\Q$url\E$|/status\?format=json$} }
               $browser->requested], [], 'no other request');

    # nginx goes, and the page says so

    $nginx->stop;
    ok($browser->wait_value('!document.getElementById("alarm").hidden', 8),
       'the page says that nginx is away');
    like(alarm_text($browser),
         qr/^nginx cannot be reached: no connection\. .*Trying again\.$/,
         'in plain words');
    ok($browser->value('document.body.classList.contains("stale")'),
       'what is old looks old');
    picture($browser, 'away');

    $nginx->start;
    ok($browser->wait_value('document.getElementById("alarm").hidden', 8),
       'and that it is back');

    $browser->stop;
    return;
}


sub text_of {
    my ($browser, $peer) = @_;

    my ($port) = $peer->addr =~ /:(\d+)/;

    return $browser->value("[...document.querySelectorAll('tbody tr')]"
                           . ".find(e => e.textContent.includes(':$port'))"
                           . '.innerText');
}


sub alarm_text {
    return $_[0]->value('document.getElementById("alarm").textContent');
}


sub rendered {
    my ($browser) = @_;

    my $text = text_of($browser, $fake);

    like($text, qr/\bconnected\b.*for \d+ s/s, 'connected, and how long');
    like($text, qr/5 of 5/, 'its budget');
    like($text, qr/\d+ sent: ok \d+/, 'its keepalives');
    like($text, qr/\d(?:\.\d)? ms/, 'their latency');

    like(text_of($browser, $idle), qr/\bconnecting\b.*3 of 3/s, 'connecting');

    $text = text_of($browser, $shaky);
    like($text, qr/\bdegraded\b.*Connection refused.*2 of 3.*in \d+ s/s,
         'degraded: why, and when it is tried');

    my ($seconds) = $text =~ /in (\d+) s/;
    my ($port) = $shaky->addr =~ /:(\d+)/;

    ok($browser->wait_value("(/in (\\d+) s/.exec([...document"
        . ".querySelectorAll('tbody tr')].find(e => e.textContent"
        . ".includes(':$port')).innerText) || [0, 999])[1] < $seconds", 5),
       'counting down');

    like(text_of($browser, $dead), qr/\bparked\b.*0 of 1.*in \d+ min/s,
         'parked');

    is($browser->value('document.querySelectorAll("svg[role=img]").length'),
       16, 'four charts an upstream');
    is($browser->value('[...document.querySelectorAll("svg")]'
        . '.filter(e => !e.getAttribute("aria-label")).length'), 0,
       'each says in words what it shows');
    ok($browser->wait_value('document.querySelector("rect.ok") !== null', 8),
       'verdicts are drawn');
    return;
}


# Wide, dark and on a phone: nothing is wider than the screen.

sub pictures {
    my ($browser) = @_;

    for my $case ([1280, 900, 'light'], [1280, 900, 'dark'],
                  [360, 740, 'light'], [360, 740, 'dark'], [768, 1024]) {
        my ($width, $height, $scheme) = @$case;

        $browser->look($width, $height, $scheme);
        picture($browser, join '-', $width, $scheme // 'light');
        cmp_ok($browser->value('document.documentElement.scrollWidth'), '<=',
               $width, "$width pixels are enough");
    }

    $browser->look(1280, 900);
    return;
}


sub picture {
    my ($browser, $name) = @_;

    $browser->screenshot("$ENV{MCP_SCREENSHOTS}/$name.png")
        if $ENV{MCP_SCREENSHOTS};
    return;
}


sub usable {
    my ($browser) = @_;

    # what a screen reader is told

    my $tree = $browser->call('Accessibility.getFullAXTree')->{nodes};
    my %role;

    $role{ $_->{role}{value} // '' }++ for grep { !$_->{ignored} } @$tree;

    is($role{table}, 4, 'tables');
    is($role{rowheader}, 4, 'with headers of rows');
    is($role{columnheader}, 4 * 9, 'and of columns');
    ok($role{meter}, 'meters');
    ok($role{status}, 'a live region');

    my @nameless = grep { !$_->{ignored} && !length($_->{name}{value} // '')
                          && $_->{role}{value}
                             =~ /^(?:button|link|meter|image|table|region)$/ }
                   @$tree;

    is_deeply([map { $_->{role}{value} } @nameless], [], 'all have names');

    # by keyboard: everything that can be used is reached, and seen

    my @reached;

    $browser->value('document.body.tabIndex = -1; document.body.focus()');

    for (1 .. 12) {
        $browser->call('Input.dispatchKeyEvent',
                       { type => $_, key => 'Tab', code => 'Tab',
                         windowsVirtualKeyCode => 9 }) for qw(keyDown keyUp);
        push @reached, $browser->value(
            'document.activeElement.tagName + " "'
            . ' + getComputedStyle(document.activeElement).outlineStyle');
    }

    is_deeply([@reached[0 .. 3]],
              ['BUTTON solid', 'A solid', 'DIV solid', 'SUMMARY solid'],
              'tab by tab');

    # pausing

    $browser->value('document.getElementById("pause").click()');
    MCP::Test::pause_ms(300);

    my $before = () = $browser->requested;

    MCP::Test::pause_ms(1500);
    $browser->value('1');
    is(scalar(my @now = $browser->requested), $before, 'paused');
    is($browser->value('document.getElementById("pause")'
                       . '.getAttribute("aria-pressed")'), 'true',
       'and said so');
    $browser->value('document.getElementById("pause").click()');
    return;
}


sub killed {
    my ($browser) = @_;

    my ($port) = $fake->addr =~ /:(\d+)/;

    ok($browser->wait_value('/\bpaused\b/.test(document.getElementById'
                            . '("about").textContent) === false', 5),
       'it goes on');
    $fake->kill;

    my $began = MCP::Test::now_ms();

    ok($browser->wait_value("[...document.querySelectorAll('tbody tr')]"
        . ".some(e => e.textContent.includes(':$port')"
        . " && e.textContent.includes('degraded'))", 3),
       'a killed server is shown as degraded');
    cmp_ok(MCP::Test::now_ms() - $began, '<=', 3000 * MCP::Test::slow(),
           'within three seconds');
    like(text_of($browser, $fake), qr/Connection refused/, 'with the reason');
    like($browser->value('document.getElementById("news").textContent'),
         qr/tools \S+: connected \S+ degraded: .*refused/, 'it is read out');
    $browser->look(1280, 1400);
    picture($browser, 'killed');
    $browser->look(1280, 900);
    return;
}
