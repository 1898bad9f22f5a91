package MCP::Memory;

# Looks into the shared memory of a process.

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(zone_holds);


# Is the text somewhere in it?  undef: cannot be seen.

sub zone_holds {
    my ($pid, $text) = @_;

    no warnings 'portable';             # of addresses above 32 bits

    open my $maps, '<', "/proc/$pid/maps" or return;
    open my $mem, '<:raw', "/proc/$pid/mem" or return;

    my $found = 0;

    while (my $line = <$maps>) {
        my ($from, $to) = $line =~ /^(\w+)-(\w+) rw-s .*zero/ or next;

        sysseek $mem, hex $from, 0 or return;
        sysread $mem, my ($bytes), hex($to) - hex($from) or return;
        $found = 1 if index($bytes, $text) >= 0;
    }

    return $found;
}


1;
