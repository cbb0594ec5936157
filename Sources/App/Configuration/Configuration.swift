/// Everything an operator can set: the defaults, until a file, the environment or a flag says
/// otherwise. One struct a section; `Configuration.keys` lists the keys by name.
public struct Configuration: Sendable, Equatable {
  /// Listening and serving.
  public var server = Server()
  /// Who may ask.
  public var auth = Auth()
  /// What one request may ask for.
  public var api = API()
  /// Queueing, working and keeping jobs.
  public var jobs = Jobs()
  /// Getting images from origins.
  public var fetch = Fetch()
  /// Decoding them.
  public var decode = Decode()
  /// The HTTP cache.
  public var cache = Cache()
  /// Telling others of ends.
  public var webhooks = Webhooks()
  /// Where images may be brought to, by their names.
  public var destinations: [Destination] = []
  /// What is kept on disk.
  public var storage = Storage()
  /// Other sources than URLs.
  public var sources = Sources()
  /// Pictures served in place of one that is not there.
  public var placeholders = Placeholders()
  /// `GET /image`.
  public var view = View()
  /// This process among those that share its jobs.
  public var cluster = Cluster()
  /// The network that the service starts with.
  public var network = Network()
  /// The log.
  public var log = Log()
  /// Traces of jobs.
  public var tracing = Tracing()

  /// The defaults.
  public init() {}
}
