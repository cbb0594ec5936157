public import Jobs

extension JobEngine {
  /// What the engine works with: the adapters.
  public struct Parts: Sendable {
    /// Keeps jobs, and what the cache knows.
    public var store: any JobStore & CacheStore
    /// Keeps images' bytes.
    public var images: any ImageStore
    /// Where they are written first, and where those of broken-off transfers stay.
    public var spool: any ImageSpool
    /// Brings images from origins.
    public var fetcher: any ImageFetcher
    /// Decodes them.
    public var codec: any ImageCodec
    /// Makes variants; nil: there are none.
    public var renderer: (any ImageRenderer)?
    /// Named images; nil: there are none.
    public var locals: (any LocalImages)?
    /// Asks other instances; nil: they are not reached.
    public var peers: (any InstancePeers)?
    /// Where hashing, decoding and writing may compute and wait.
    public var threads: any ComputeThreads

    /// The parts.
    public init(
      store: any JobStore & CacheStore, images: any ImageStore,
      spool: any ImageSpool,
      fetcher: any ImageFetcher, codec: any ImageCodec,
      renderer: (any ImageRenderer)? = nil, locals: (any LocalImages)? = nil,
      peers: (any InstancePeers)? = nil, threads: any ComputeThreads
    ) {
      self.store = store
      self.images = images
      self.spool = spool
      self.fetcher = fetcher
      self.codec = codec
      self.renderer = renderer
      self.locals = locals
      self.peers = peers
      self.threads = threads
    }
  }
}
