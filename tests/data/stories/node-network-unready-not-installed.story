# No network plugin is installed. All pods of the node are on the host's network, and run.
0s    runtime starts
0s    kubelet starts
0s    configuration gone
1s    configuration read
2s    sandbox a of proxy on-host
3s    container main in a starts
30m   end
expect confirmed node_network_unready/no_configuration info x0 since 1s
