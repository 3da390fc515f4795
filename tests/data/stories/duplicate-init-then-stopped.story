# An init container exits 0, and the runtime stops the pod at work: the pod had not been done. The next sandbox waits for an
# image until the pod is deleted.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container init in a starts
3s    container init in a exits 0
4s    container main in a starts
9s    container main in a is stopped
11s   stop a
12s   sandbox b of web-0 on podnet 10.88.0.3
2m    stop b
3m    remove a
4m    remove b
9m    end
expect nothing
