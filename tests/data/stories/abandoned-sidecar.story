# Pods with a container that runs are not abandoned, whatever became of the others.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
2s    container proxy in a starts
30s   container main in a exits 1
2h    end
expect nothing
