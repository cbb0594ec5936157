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
    /// Sends messages to receivers; nil: nobody is told of ends.
    public var webhooks: Webhooks?
    /// Brings images where clients want them; nil: nowhere.
    public var destinations: (any ImageDestinations)?
    /// Hears of the ends of jobs; nil: nobody traces them.
    public var tracer: (any JobTracer)?
    /// Where hashing, decoding and writing may compute and wait.
    public var threads: any ComputeThreads

    /// The parts.
    public init(
      store: any JobStore & CacheStore, images: any ImageStore,
      spool: any ImageSpool,
      fetcher: any ImageFetcher, codec: any ImageCodec,
      renderer: (any ImageRenderer)? = nil, locals: (any LocalImages)? = nil,
      peers: (any InstancePeers)? = nil, webhooks: Webhooks? = nil,
      destinations: (any ImageDestinations)? = nil, tracer: (any JobTracer)? = nil,
      threads: any ComputeThreads
    ) {
      self.store = store
      self.images = images
      self.spool = spool
      self.fetcher = fetcher
      self.codec = codec
      self.renderer = renderer
      self.locals = locals
      self.peers = peers
      self.webhooks = webhooks
      self.destinations = destinations
      self.tracer = tracer
      self.threads = threads
    }
  }
  /// What tells receivers of ends.
  public struct Webhooks: Sendable {
    /// Sends one try.
    public var client: any WebhookClient
    /// How messages are sent.
    public var rules: WebhookRules
    /// What a message says: the same each time.
    public var body: @Sendable (WebhookMessage) -> [UInt8]

    /// The parts.
    public init(
      client: any WebhookClient, rules: WebhookRules,
      body: @escaping @Sendable (WebhookMessage) -> [UInt8]
    ) {
      (self.client, self.rules, self.body) = (client, rules, body)
    }
  }
}
