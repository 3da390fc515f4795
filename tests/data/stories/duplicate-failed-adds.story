# ADD fails, and each try is a new sandbox: none of them counts.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
1s    add a podnet 10.88.0.2 fails
2s    netns of a lost
5s    sandbox b of web-0 on podnet 10.88.0.2
6s    container main in b starts
9m    end
expect nothing
