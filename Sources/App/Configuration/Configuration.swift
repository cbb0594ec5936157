/// All settings of the service, one struct per section. `Configuration.keys` lists every key by name.
///
/// A new value has the defaults. ``load(file:environment:flags:)`` applies a file, the environment and flags.
public struct Configuration: Sendable, Equatable {
  public var server = Server()
  public var auth = Auth()
  public var api = API()
  public var jobs = Jobs()
  public var fetch = Fetch()
  public var decode = Decode()
  public var cache = Cache()
  public var webhooks = Webhooks()
  public var destinations: [Destination] = []
  public var storage = Storage()
  public var sources = Sources()
  public var placeholders = Placeholders()
  public var view = View()
  public var cluster = Cluster()
  public var network = Network()
  public var log = Log()
  public var tracing = Tracing()

  public init() {}
}
