# The folder cannot be read: nothing is known of what the runtime takes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   configuration half-read
61s   configuration undecodable
62s   configuration read
20m   end
expect nothing
