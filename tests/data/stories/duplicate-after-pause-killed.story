# The pod was at work when its pause was killed, and its container ended well when the kubelet told it to. The next
# sandbox waits for an image until the pod is deleted: the pod had not been done.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    kill pause of a by stranger
10s   container main in a exits 0
11s   stop a
12s   sandbox b of web-0 on podnet 10.88.0.3
13s   remove a
2m    stop b
3m    remove b
9m    end
expect confirmed teardown_out_of_order/pause_killed chaos web-0 a
