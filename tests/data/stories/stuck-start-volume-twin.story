# The configuration is cut off for three minutes, while pods wait for a volume and for a ConfigMap. One of them is on the
# host's network. Nothing shows that the runtime has begun a sandbox of them. Only the node's network is reported.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   pod web-1
60s   pod proxy
61s   configuration undecodable
4m    configuration repaired
8m    sandbox b of web-1 on podnet 10.88.0.3
8m    container main in b starts
8m    sandbox c of proxy on-host
8m    container main in c starts
12m   end
expect closed node_network_unready/bad_configuration warning x0
