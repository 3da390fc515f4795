# The plugin's executable is absent for a moment, while it is being replaced.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
2s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2 stops
13s   del a
13s   netns of a lost
14s   sandbox b of web-0 on podnet 10.88.0.3
15s   container main in b starts
9m    end
expect nothing
