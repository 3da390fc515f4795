# The kubelet's record does not name the containers, so the first may be an init container.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container first in a starts
3s    container first in a exits 0
50m   container main in a starts
2h    end
expect nothing
