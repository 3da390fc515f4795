# The network is back after three minutes, and an image is pulled for four. The pod waits for another step then, with a
# limit of its own.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   pod web-1
61s   configuration undecodable
62s   sandbox b of web-1 begins
62s   record b
62s   netns of b lost
5m    configuration repaired
5m    sandbox c of web-1 on podnet 10.88.0.3
9m    container main in c starts
12m   end
expect closed stuck_start/sandbox not_configured /etc/cni/net.d/10-podnet.conflist
expect closed node_network_unready/bad_configuration
expect incident node_network_unready .stuck_start
