# The agent starts after the pod of gvisor-alone, whose cache file cannot be decoded. The node is listed again after a loss.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 under gvisor-alone on podnet 10.88.0.2
3s    container main in a starts
4s    cache of a torn
1m    agent starts
5m    lose 1
8m    agent restarts
18m   end
expect closed blind_spot Lost
expect confirmed blind_spot
