"""Common English words that sentinels are drawn from.

The BIP 39 English list (MIT licence, Bitcoin contributors), without words of fewer than four letters and without
function words. In the byte-pair vocabularies of current models nearly all of them, with a leading blank, are one token:
models copy them faithfully, which they do not with a UUID.
"""

_LIST = """
abandon ability able absent absorb abstract absurd abuse access accident account accuse achieve acid acoustic acquire
action actor actress adapt addict address adjust admit adult advance advice aerobic affair afford afraid agent agree
ahead airport aisle alarm album alcohol alert alien alley allow almost alone alpha already alter amateur amazing
amount analyst anchor ancient anger angle angry animal ankle announce annual antenna antique anxiety apart apology
appear apple approve arch arctic area arena argue armed armor army arrange arrest arrive arrow artist artwork aspect
asset assist assume asthma athlete atom attack attend attitude attract auction audit aunt author auto autumn average
avocado avoid awake aware away awesome awful awkward axis baby bachelor bacon badge balance balcony ball bamboo banana
banner barely bargain barrel base basic basket battle beach bean beauty become beef begin behave behind believe belt
bench benefit best betray better beyond bicycle bike bind biology bird birth bitter black blade blame blanket blast
bleak bless blind blood blossom blue blur board boat body boil bone bonus book boost border boring borrow boss bottom
bounce bracket brain brand brass brave bread breeze brick bridge brief bright bring brisk broccoli broken bronze broom
brother brown brush bubble buddy budget buffalo build bulb bulk bullet bundle burden burst business busy butter buyer
buzz cabbage cabin cable cactus cage cake call calm camera camp canal cancel candy cannon canoe canvas canyon capable
capital captain carbon card cargo carpet carry cart case cash casino castle casual catalog catch category cattle
caught cause caution cave ceiling celery cement census century cereal certain chair chalk champion change chaos
chapter charge chase chat cheap check cheese chef cherry chest chicken chief child chimney choice choose chronic chunk
churn cigar cinnamon circle citizen city civil claim clarify claw clay clean clerk clever click client cliff climb
clinic clip clock clog close cloth cloud clown club clump cluster clutch coach coast coconut code coffee coil coin
collect color column combine come comfort comic common company concert conduct confirm congress connect consider
control convince cook cool copper copy coral core corn correct cost cotton couch country couple course cousin cover
crack cradle craft cram crane crash crater crawl crazy cream credit creek crew cricket crime crisp critic crop cross
crowd crucial cruel cruise crunch crush crystal cube culture curious current curtain curve cushion custom cute cycle
damage damp dance danger daring dash daughter dawn deal debate debris decade decide decline decorate decrease deer
defense define defy degree delay deliver demand demise denial dentist deny depart depend deposit depth deputy derive
describe desert design desk despair destroy detail detect develop device devote diagram dial diamond diary dice diesel
diet differ digital dignity dilemma dinner dinosaur direct dirt disagree discover disease dish dismiss disorder
display distance divert divide divorce doctor document doll dolphin domain donate donkey donor door dose double dove
draft dragon drama drastic draw dream dress drift drill drink drip drive drop drum duck during dust duty dwarf dynamic
eager eagle early earn earth easily east easy echo ecology economy edge edit educate effort eight elbow elder electric
elegant element elephant elevator elite embark embody embrace emerge emotion employ empower empty enable enact endless
endorse enemy energy enforce engage engine enhance enjoy enlist enough enrich enroll ensure enter entire entry
envelope episode equal equip erase erode erosion error erupt escape essay essence estate eternal ethics evidence evil
evoke evolve exact example excess exchange excite exclude excuse execute exercise exhaust exhibit exile exist exit
exotic expand expect expire explain expose express extend extra fabric face faculty fade faint faith fall false fame
family famous fancy fantasy farm fashion fatal father fatigue fault favorite feature federal feed feel female fence
festival fetch fever fiber fiction field figure file film filter final fine finger finish fire firm fiscal fish
fitness flag flame flash flat flavor flee flight flip float flock floor flower fluid flush foam focus foil fold follow
food foot force forest forget fork fortune forum forward fossil foster found fragile frame frequent fresh friend
fringe frog front frost frozen fruit fuel funny furnace fury future gadget gain galaxy gallery game garage garbage
garden garlic garment gate gather gauge gaze general genius genre gentle genuine gesture ghost giant gift ginger
giraffe girl give glad glance glare glass glide glimpse globe glory glove glow glue goat goddess gold good goose
gorilla gospel gossip govern grab grace grain grant grape grass gravity great green grid grief grit grocery group grow
guard guess guide guilt guitar habit hair half hammer hand happy harbor hard harsh harvest hawk hazard head health
heart heavy height helmet help hero hidden high hill hint hire history hobby hockey hold hole holiday hollow home
honey hood hope horn horror horse hospital host hotel hour hover huge human humble humor hundred hungry hunt hurdle
hurry hurt husband hybrid icon idea identify idle ignore illegal illness image imitate immense immune impact impose
improve impulse inch include income increase index indicate indoor industry infant inflict inform inhale inherit
initial inject injury inner innocent input inquiry insane insect inside inspire install intact interest invest invite
involve iron island isolate issue item ivory jacket jazz jealous jeans jelly jewel join joke journey judge juice jump
jungle junior junk kangaroo keen kick kidney kind kingdom kiss kitchen kite kitten kiwi knee knife knock know label
labor ladder lady lake lamp language laptop large later laugh laundry lava lawn lawsuit layer lazy leader leaf learn
leave lecture left legal legend leisure lemon lend length lens leopard lesson letter level liberty library license
life lift light limb limit link lion liquid list live lizard load loan lobster local lock logic lonely long loop
lottery loud love loyal lucky luggage lumber lunar lunch luxury lyrics machine magic magnet maid mail main major
mammal manage mandate mango mansion manual maple marble march margin marine market marriage mask mass master match
material math matrix matter maximum maze meadow mean measure meat mechanic medal media melody melt member memory
mention menu mercy merge merit mesh message metal method middle midnight milk million mimic mind minimum minor minute
miracle mirror misery miss mistake mixed mixture mobile model modify moment monitor monkey monster month moon moral
morning mosquito mother motion motor mountain mouse move movie mule multiply muscle museum mushroom music mutual
mystery myth naive name narrow nation nature near neck need negative neglect nephew nerve nest network neutral news
nice night noble noise normal north nose notable note notice novel nuclear number nurse obey object obscure observe
obtain obvious occur ocean odor offer office okay olive omit onion online open opera opinion oppose option orange
orbit orchard order ordinary organ orient original orphan outdoor outer output outside oval oven owner oxygen oyster
ozone pact paddle pair palace palm panda panel panic paper parade parent park parrot party pass patch path patient
patrol pattern pause pave payment peace peanut pear peasant penalty pencil pepper perfect permit person phone photo
phrase physical piano picnic picture piece pigeon pill pilot pink pioneer pipe pitch pizza place planet plastic plate
play pledge plug plunge poem poet point polar pole police pond pony pool popular portion position possible post potato
pottery poverty powder power practice praise predict prefer prepare present pretty prevent price pride primary print
priority prison private prize problem process produce profit program project promote proof property prosper protect
proud provide public pudding pull pulp pulse pumpkin punch pupil puppy purchase purity purpose purse push puzzle
pyramid quality quantum quarter quick quit quiz quote rabbit race rack radar radio rail rain raise rally ramp ranch
random range rapid rare rate razor ready real reason rebel rebuild recall receive recipe record recycle reduce reflect
reform refuse region regret regular reject relax release relief rely remain remind remove render renew rent repair
replace report require rescue resemble resist resource response result retire retreat return reveal review reward
rhythm ribbon rice rich ride ridge right rigid ring riot ripple risk ritual rival river road roast robot robust rocket
romance roof room rose rotate rough round route royal rubber rude rule runway rural saddle sadness safe sail salad
salmon salt sample sand satisfy sauce sausage save scale scan scare scatter scene scheme school science scissors scout
scrap screen script scrub search season seat second section security seed seek segment select sell seminar senior
sense sentence series service session settle setup seven shadow shaft shallow share shed shell sheriff shield shift
shine ship shock shoe shoot shop short shoulder shrimp shuffle sibling sick side siege sight sign silent silk silly
silver similar simple sing sister size skate sketch skill skin skirt skull slab sleep slender slice slide slight slim
slogan slot slow small smart smile smoke smooth snack snake snap sniff snow soap soccer social sock soda soft solar
soldier solid solution solve someone song soon sorry sort soul sound soup source south space spare spatial spawn speak
special speed spell spend sphere spice spider spike spin spirit split spoil sponsor spoon sport spot spray spread
spring square squeeze squirrel stable stadium staff stage stairs stamp stand start state stay steak steel stem step
stereo stick sting stock stomach stone stool story stove strategy street strike strong struggle student stuff stumble
style subject submit subway success sudden suffer sugar suggest suit summer sunny sunset super supply supreme sure
surface surge surprise surround survey suspect sustain swallow swamp swap swarm swear sweet swift swim swing switch
sword symbol symptom syrup system table tackle tail talent talk tank tape target task taste tattoo taxi teach team
tell tennis tent term test text thank theme theory thing thought thrive throw thumb thunder ticket tide tiger tilt
timber time tiny tired tissue title toast tobacco today toddler together toilet token tomato tomorrow tone tongue
tonight tool tooth topic torch tornado tortoise toss total tourist toward tower town track trade traffic tragic train
transfer trap trash travel tray treat tree trend trial tribe trick trigger trim trip trophy trouble truck true truly
trumpet trust truth tube tuition tuna tunnel turkey turn turtle twelve twenty twice twin twist type typical ugly
umbrella unable unaware uncle uncover undo unfair unfold unhappy uniform unique unit universe unknown unlock unusual
update upgrade uphold upper upset urban urge usage useful useless usual utility vacant vacuum vague valid valley valve
vanish vapor various vast vault vehicle velvet vendor venture venue verb verify version vessel veteran viable vibrant
vicious victory video view village vintage violin virtual virus visa visit visual vital vivid vocal voice void volcano
volume vote voyage wage wagon wait walk wall walnut want warfare warm warrior wash wasp waste water wave wealth wear
weather wedding weekend weird welcome west whale wheat wheel whip whisper wide width wife wild window wine wing winner
winter wire wisdom wise wish witness wolf woman wonder wood wool work world worry worth wrap wreck wrist write wrong
yard year yellow young youth zebra zero zone
"""

WORDS: tuple[str, ...] = tuple(_LIST.split())
