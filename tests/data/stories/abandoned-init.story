# Between two init containers, and before the pod's own: the kubelet's record names a container whose image takes long.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    pod web-0 has main
2s    container first in a starts
3s    container first in a exits 0
10m   container second in a starts
11m   container second in a exits 0
90m   container main in a starts
2h    end
expect nothing
