# The node was suspended: the kubelet's back-off did not run.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
60m   wakes
63m   container main in a starts
70m   end
expect nothing
