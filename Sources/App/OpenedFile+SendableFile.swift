public import HTTP
public import Store

/// A stored image's file goes to clients by the kernel alone.
extension OpenedFile: SendableFile {}
