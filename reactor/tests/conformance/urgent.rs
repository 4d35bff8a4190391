//! Urgent data (`MSG_OOB`), which the simulator does not have. TCP takes the urgent byte out of the
//! stream; what stands behind it must not be held back.

use std::io::ErrorKind;
use std::time::Duration;

use toron_reactor::NativeEngine;

use crate::native::Native;
use crate::rig::Rig;

/// Everything that has been sent has arrived, and the engine has been told.
fn settle<E: NativeEngine>(rig: &mut Rig<Native<E>>) {
    for _ in 0..4 {
        rig.turn(Duration::from_millis(1));
    }
}

pub fn receives_end_at_the_mark_and_go_on<E: NativeEngine>(lab: Native<E>) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    for round in 0..3 {
        rig.peer_sends(&peer, b"before");
        peer.send_urgent();
        rig.peer_sends(&peer, b"behind");
        settle(&mut rig);
        // The first ends short of what has come, for which there is no further edge.
        assert_eq!(rig.reads(fd, 12), b"beforebehind", "round {round}");
    }
    rig.close(fd);
    rig.finish();
}

pub fn splices_stop_at_the_mark_which_a_receive_passes<E: NativeEngine>(lab: Native<E>) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    for round in 0..3 {
        rig.peer_sends(&source, b"before");
        source.send_urgent();
        rig.peer_sends(&source, b"behind");
        settle(&mut rig);
        assert_eq!(rig.engine.splice_in(from, &mut pipe, 100).unwrap(), 6);
        assert_eq!(rig.engine.splice_out(&mut pipe, to, 6, false).unwrap(), 6);
        assert_eq!(rig.peer_reads(&sink, 6), b"before", "round {round}");
        let at_mark = rig.engine.splice_in(from, &mut pipe, 100);
        assert_eq!(at_mark.map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
        // It is not dry: whoever waits for it is told, and a receive finds what is there.
        rig.readable(from);
        assert_eq!(rig.reads(from, 6), b"behind", "round {round}");
    }
    rig.peer_sends(&source, b"more");
    rig.readable(from);
    assert_eq!(rig.engine.splice_in(from, &mut pipe, 100).unwrap(), 4);
    assert_eq!(rig.engine.splice_out(&mut pipe, to, 4, false).unwrap(), 4);
    assert_eq!(rig.peer_reads(&sink, 4), b"more");
    rig.engine.return_pipe(pipe);
    rig.close(from);
    rig.close(to);
    rig.finish();
}
