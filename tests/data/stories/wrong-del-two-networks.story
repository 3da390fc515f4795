# An ADD that fails by itself is followed by a DEL, and two networks of a pod are torn down one after the other.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2 fails-holding
3s    del a
4s    netns of a lost
5s    sandbox b of web-1 on podnet 10.88.0.3 and second 10.77.0.2
9s    stop b
10s   remove b
9m    end
expect nothing
