# A second runtime runs. It is not known which of the two serves the pods.
0s    runtime starts
0s    kubelet starts
0s    crio starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
61s   configuration undecodable
62s   configuration read
20m   end
expect nothing
