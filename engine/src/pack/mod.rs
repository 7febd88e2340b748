//! Turns a valid manifest and its directory into the files a run needs, read once (contract §1, §2).
//! It refuses to know the loop.
