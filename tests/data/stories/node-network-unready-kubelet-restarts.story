# The kubelet restarts meanwhile. The limit begins again with it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
61s   configuration undecodable
62s   configuration read
100s  kubelet dies
110s  kubelet starts
165s  end
expect nothing
