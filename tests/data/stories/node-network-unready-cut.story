# The configuration is cut off while nothing starts, and is whole again after five minutes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
61s   configuration undecodable
62s   configuration read
2m    configuration read
6m    configuration repaired
7m    configuration read
9m    end
expect closed node_network_unready/bad_configuration warning /etc/cni/net.d/10-podnet.conflist x0 since 62s
