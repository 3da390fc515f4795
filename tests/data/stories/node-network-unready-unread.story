# The folder can no longer be read while the finding is open: it stays, since nothing is known.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
61s   configuration undecodable
62s   configuration read
5m    configuration repaired
5m    configuration half-read
6m    configuration read
20m   end
expect confirmed node_network_unready/bad_configuration warning /etc/cni/net.d/10-podnet.conflist x0 since 62s
