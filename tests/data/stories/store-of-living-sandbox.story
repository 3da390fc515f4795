# A sandbox of the network lives: the configuration is elsewhere, and a leak is a leak.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    sandbox b of web-1 on podnet 10.88.0.3
9s    stop b no-del
10s   remove b no-del
11s   network podnet unconfigured
20s   agent starts
9m    end
expect confirmed leaked_address/stale_record 10.88.0.3
