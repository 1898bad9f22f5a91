package MCP::Conf;

# Builds nginx.conf for a test.  Every part can be given:
#   workers, level, connections, main, events
#   http       directives of the http block
#   upstream   what stands in "upstream tools", after its servers
#   servers    addresses of its servers (those of fakes => [...])
#   server     directives of the server block
#   location   directives of "location /mcp" after its proxy_pass lines
#   proxy      those proxy_pass lines
#   listen     parameters of the listen directive
#   status     0: no status server
#   conf       the whole content of the http block in place of all that
# In each part %%port%%, %%status%%, %%dir%%, %%port1%% ... and %%fake1%% ...
# are replaced.

use strict;
use warnings;

use Exporter 'import';
use MCP::Util qw(free_port project_root);

our @EXPORT_OK = qw(conf_text expand module_file);

my $proxy = <<'END';
proxy_pass http://tools;
proxy_http_version 1.1;
proxy_set_header Connection "";
proxy_set_header Host $http_host;
proxy_buffering off;
END


# undef when the module is part of the binary.

sub module_file {
    my $file = $ENV{MCP_MODULE}
               // project_root() . '/objs/ngx_mcp_keepalive_module.so';

    return $file eq 'builtin' ? undef : $file;
}


sub conf_text {
    my ($arg) = @_;

    my $http = $arg->{conf} // http_block($arg);
    my $status = ($arg->{status} // 1) ? status_server($arg) : '';
    my $module = $arg->{module} // 1 ? module_file() : undef;
    my @main = (
        $module ? "load_module $module;" : (),
        $> == 0 ? 'user root;' : (),
        'daemon off;',
        'worker_processes ' . ($arg->{workers} // 1) . ';',
        'pid %%dir%%/nginx.pid;',
        'error_log %%dir%%/error.log ' . ($arg->{level} // 'info') . ';',
        $arg->{main} // '',
        'events {',
        'worker_connections ' . ($arg->{connections} // 1024) . ';',
        $arg->{events} // '',
        '}');
    my @temp = map { "${_}_temp_path %%dir%%/$_;" }
               qw(client_body proxy fastcgi uwsgi scgi);

    return expand($arg, join "\n", @main, 'http {', @temp,
                  'access_log %%dir%%/access.log;', $http, $status, '}', '');
}


sub http_block {
    my ($arg) = @_;

    my @addr = @{ $arg->{servers}
                  // [map { $_->addr } @{ $arg->{fakes} // [] }] };
    my $servers = join "\n", map { "server $_;" } @addr;
    my $listen = $arg->{listen}
                 // (($arg->{workers} // 1) > 1 ? 'reuseport' : '');
    my %part = map { $_ => $arg->{$_} // '' }
               qw(http upstream server location);

    return <<"END";
$part{http}
upstream tools {
$servers
$part{upstream}
}
server {
listen 127.0.0.1:%%port%% $listen;
server_name tools.example;
$part{server}
location /mcp {
@{[ $arg->{proxy} // $proxy ]}
$part{location}
}
}
END
}


sub status_server {
    my ($arg) = @_;

    my $mcp = $arg->{module} // 1
              ? 'location = /status { mcp_status; }' : '';

    return <<"END";
server {
listen 127.0.0.1:%%status%%;
access_log off;
location = /up { return 200 "up"; }
location = /stub { stub_status; }
$mcp
}
END
}


sub expand {
    my ($arg, $text) = @_;

    my @fakes = @{ $arg->{fakes} // [] };
    my $ports = $arg->{ports} //= {};

    $text =~ s/%%dir%%/$arg->{dir}/g;
    $text =~ s/%%fake(\d+)%%/$fakes[$1 - 1]->addr/ge;
    $text =~ s/%%(port\d*|status)%%/$ports->{$1} \/\/= free_port()/ge;

    return $text;
}


1;
