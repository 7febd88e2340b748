//! Turns lines that operators send into admitted inputs, and a run into status and lines for them (contract §7.1).
//! It refuses to know how the loop works, and the loop never waits for it.
