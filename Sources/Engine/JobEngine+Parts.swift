package import Jobs

extension JobEngine {
  /// The adapters that the engine works with.
  package struct Parts: Sendable {
    /// Stores jobs and cache entries.
    var store: any JobStore & CacheStore
    /// Stores the bytes of images.
    var images: any ImageStore
    /// Holds images while they are received, and partial transfers.
    var spool: any ImageSpool
    /// Fetches images from origins.
    var fetcher: any ImageFetcher
    /// Decodes images.
    var codec: any ImageCodec
    /// Renders variants; nil: variants are not offered.
    var renderer: (any ImageRenderer)?
    /// Opens local images; nil: there are none.
    var locals: (any LocalImages)?
    /// Sends webhook messages; nil: webhooks are off.
    var webhooks: Webhooks?
    /// Uploads images for `deliver`; nil: deliveries are off.
    var destinations: (any ImageDestinations)?
    /// Receives the end of each job and its stages; nil: tracing is off.
    var tracer: (any JobTracer)?
    /// Threads on which hashing, decoding and file access may block.
    var threads: any ComputeThreads

    package init(
      store: any JobStore & CacheStore, images: any ImageStore,
      spool: any ImageSpool,
      fetcher: any ImageFetcher, codec: any ImageCodec,
      renderer: (any ImageRenderer)? = nil, locals: (any LocalImages)? = nil,
      webhooks: Webhooks? = nil,
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
      self.webhooks = webhooks
      self.destinations = destinations
      self.tracer = tracer
      self.threads = threads
    }
  }
  /// The parts that send webhook messages.
  package struct Webhooks: Sendable {
    /// Sends one request.
    var client: any WebhookClient
    /// Timing and limits of the requests.
    var rules: WebhookRules
    /// Returns the request body of a message: the same bytes for every try.
    var body: @Sendable (WebhookMessage) -> [UInt8]

    package init(
      client: any WebhookClient, rules: WebhookRules,
      body: @escaping @Sendable (WebhookMessage) -> [UInt8]
    ) {
      (self.client, self.rules, self.body) = (client, rules, body)
    }
  }
}
