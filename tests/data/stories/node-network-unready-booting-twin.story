# A node boots. The network plugin's own pod, on the host's network, writes the configuration after 50 s.
0s    configuration gone
0s    runtime starts
0s    kubelet starts
1s    configuration read
2s    sandbox a of cni on-host
3s    container main in a starts
50s   configuration repaired
52s   sandbox b of web-0 on podnet 10.88.0.2
52s   container main in b starts
5m    end
expect nothing
