# An ADD reserves its address and then fails; no DEL follows.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
1s    add a podnet 10.88.0.2 fails-holding
2s    netns of a lost
9m    end
expect confirmed leaked_address/add_failed 10.88.0.2 web-0 a
