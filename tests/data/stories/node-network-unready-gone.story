# Somebody removes the configuration of a node whose pods run.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
61s   configuration gone
62s   configuration read
5m    end
expect confirmed node_network_unready/no_configuration warning x0 since 62s
