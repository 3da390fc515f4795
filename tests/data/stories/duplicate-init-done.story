# An init container is done when its sandbox is lost; the next one is given up before it runs anything.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container init in a starts
3s    container init in a exits 0
4s    kill pause of a by stranger
5s    sandbox b of web-0 on podnet 10.88.0.3
9s    stop a
20s   stop b
21s   remove a
21s   remove b
9m    end
expect confirmed teardown_out_of_order/pause_killed web-0 a
