# The configuration is cut off. A pod waits for a sandbox, and another one cannot end: both wait for the network.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   pod web-1
61s   configuration undecodable
61s   configuration read
62s   sandbox b of web-1 begins
62s   record b
62s   netns of b lost
80s   stop a no-del
6m    end
expect confirmed node_network_unready/bad_configuration critical /etc/cni/net.d/10-podnet.conflist x1 since 61s
expect confirmed stuck_start/sandbox not_configured /etc/cni/net.d/10-podnet.conflist since 61s
expect confirmed stuck_stop/del x0 web-0 a
expect incident node_network_unready .stuck_start .stuck_stop
