# libcni writes the file while the agent reads it. The stop works as usual.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
59s   cache of a torn
60s   kill pause of a by runtime
61s   cache of a mended
62s   del a
62s   netns of a lost
9m    end
expect nothing
