# It is about the past, and closes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
2s    add a podnet overtaken
3s    netns of a lost
5s    pod web-0 goes
12m   end
expect closed cni_wrong_del/add_open bridge web-0 a since 2s
